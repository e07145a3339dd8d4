"""What Slurm's controller says of the node: states, reason, resources."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output, script, whole
from nodectl.model.recording import Recording

_SHOW = """\
command -v scontrol >/dev/null || exit 127
name=$(uname -n)
exec scontrol --oneliner show node "${SLURMD_NODENAME:-${name%%.*}}"
"""
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z]+)=(.*?)(?=\s+[A-Za-z]+=|\s*$)")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """`states` are the parts of the node's state, without marks such as `*`."""

    name: str
    states: tuple[str, ...]
    responding: bool
    reason: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gres: str | None = None
    version: str | None = None


def _read(recording: Recording) -> SlurmNode:
    done = entry(recording, "slurm-node")
    answer = (done.stdout + done.stderr).strip()
    if done.exit_status == 1 and "not found" in answer:
        raise AbsentError(f"Slurm's controller does not know this node: {answer.splitlines()[0]}")
    text = output(recording, "slurm-node")
    fields = {match[1]: match[2].strip() for match in _FIELD.finditer(" ".join(text.split()))}
    if "NodeName" not in fields or "State" not in fields:
        raise ParseError(f"scontrol: {text[:200]!r} names no node with a state")
    parts = fields["State"].split("+")
    states = tuple(part.rstrip("*~#!%$@^-") for part in parts)
    return SlurmNode(
        name=fields["NodeName"],
        states=states,
        responding=not any("*" in part for part in parts) and "NOT_RESPONDING" not in states,
        reason=fields.get("Reason") or None,
        cpus=whole(fields.get("CPUTot")),
        memory_mib=whole(fields.get("RealMemory")),
        gres=None if fields.get("Gres") in (None, "(null)") else fields["Gres"],
        version=fields.get("Version") or None,
    )


def _words(node: SlurmNode) -> str:
    return "+".join(node.states) + (f", {node.reason}" if node.reason else "")


FACT = Fact("slurm", (script("slurm-node", _SHOW, hardware=True, waits=True),), _read, _words, row=860)
