"""What Slurm's controller says of the node: states, reason, resources."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output, script, whole
from nodectl.model.recording import Recording

# A host belongs to Slurm where slurmd runs or a configuration names it; a client that is installed is no sign.
# Without slurmd the controller is asked for a few seconds only, since an old client looks a minute for its file.
_SHOW = """\
command -v scontrol >/dev/null || exit 127
name=$(uname -n)
name=${SLURMD_NODENAME:-${name%%.*}}
! grep -sqx slurmd /proc/[0-9]*/comm || exec scontrol --oneliner show node "$name"
exec 3>&1
complaint=$(timeout 5 scontrol --oneliner show node "$name" 2>&1 >&3) && exit
status=$?
printf '%s\\n' "$complaint" >&2
case $complaint in
*'establish a configuration source'* | *'unable to status file'*) exit 3 ;;
esac
for file in "$SLURM_CONF" /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf; do
    [ ! -r "$file" ] || break
done
grep -isq '^ *include' "$file" && exit $status
nodes=$(sed -n 's/^ *[Nn]ode[Nn]ame=\\([^ ]*\\).*/\\1/p' "$file" 2>/dev/null | grep -vix default | paste -sd, -)
names=$(timeout 5 scontrol show hostnames "$nodes" 2>/dev/null) && [ -n "$names" ] || exit $status
printf '%s\\n' "$names" | grep -qxF "$name" || exit 3
exit $status
"""
_ABSENT = "a client of Slurm is installed, but no slurmd runs here, and no configuration of Slurm names this host"
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
    text = output(recording, "slurm-node", _ABSENT)
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
