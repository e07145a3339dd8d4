"""A node's own look told to Slurm: it is drained with what failed as the reason, and given back when nothing does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nodectl.checks.system.services import SLURM_STATE
from nodectl.errors import UnreachableError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status

# by this a reason is known as ours: what another has drained stays as it is
MARK = "nodectl: "
_LONGEST_REASON = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIELD = re.compile(r"\b(State|Reason)=(.*?)(?=\s+\[[^\s\]]+@[^\]]*\]|\s+[A-Z][A-Za-z]+=|\s*$)")


def node_name(hosts: Sequence[Host]) -> str:
    """Return the name of this node in Slurm; UsageError where the look is not one of this very node."""
    if len(hosts) != 1 or hosts[0].connection != "local":
        raise UsageError(
            "--drain is for a node's own look, with an inventory of that node alone and ansible_connection: local",
            "the health_timer role writes such an inventory: /etc/nodectl/health/inventory.json",
        )
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    if not _NAME.fullmatch(name):  # scontrol would take a list or ALL
        raise UsageError(f"SLURMD_NODENAME {name!r} is no name of a node", "let slurmd call this")
    return name


def drain_reason(findings: Iterable[Finding], mark: str = MARK) -> str:
    """Return what failed, on one bounded line of plain characters; empty where nothing did.

    What Slurm itself says of the node is no reason: it would hold the node for having been held.
    """
    failed = [item for item in findings if item.status is Status.FAILED and item.check != SLURM_STATE.id]
    if not failed:
        return ""
    first = failed[0]
    name = f"{first.check} {first.subject}".strip()
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    reason = " ".join(f"{name}: {first.actual}".split())
    plain = re.sub(r"[^ -~]", "?", reason).replace('"', "'")
    room = _LONGEST_REASON - len(mark) - len(more)
    return mark + (plain if len(plain) <= room else plain[: room - 3] + "...") + more


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """Hold what scontrol says of a node."""

    drained: bool
    reason: str


def read_node(text: str) -> SlurmNode:
    """Return `scontrol --oneliner show node NAME`."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(" ".join(text.split())):
        fields.setdefault(match[1], match[2])  # the reason comes last, and may hold "State=" itself
    if "State" not in fields:
        raise UnreachableError(f"scontrol names no state of the node: {text[:200]!r}")
    return SlurmNode("DRAIN" in fields["State"], fields.get("Reason", ""))


def report(
    name: str, findings: Iterable[Finding], scontrol: Callable[..., str], *, resume: bool = False, mark: str = MARK
) -> str:
    """Drain the node where something failed, with `resume` give it back where nothing does; what was done, in words.

    What is drained by another `mark` is not given back by a node's own look.
    """
    node = read_node(scontrol("--oneliner", "show", "node", name))
    reason, ours = drain_reason(findings, mark), node.reason.startswith(MARK)
    if node.drained and not ours:
        return f"{name} is drained already: {node.reason}" if reason else ""
    if reason and reason != node.reason:
        scontrol("update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
        return f"{name} is drained: {reason}"
    if resume and not reason and node.drained:
        scontrol("update", f"NodeName={name}", "State=RESUME")
        return f"{name} is given back: nothing fails any more ({node.reason})"
    return ""
