"""`health --drain`: drain this node in Slurm if its health fails, and resume it when nothing fails any more."""

import os
import re
from collections.abc import Iterable, Sequence

from nodectl.checks.system.services import SLURM_STATE
from nodectl.errors import UnreachableError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.transport.base import Transport

# a reason that begins with this is nodectl's own
_MARK = "nodectl: "
_LONGEST_REASON = 200
_NODE = re.compile(r" State=(\S+)(?:.*? Reason=(.*?)(?: \[\S+@[^\]]*\]|$))?")


def refuse_other_nodes(hosts: Sequence[Host]) -> None:
    """Raise UsageError if the look is not a node's own."""
    if len(hosts) != 1 or hosts[0].connection != "local":
        raise UsageError(
            "--drain is for a node's own look, with an inventory of that node alone and ansible_connection: local",
            "the health_timer role writes such an inventory: /etc/nodectl/health/inventory.json",
        )


def drain_reason(findings: Iterable[Finding]) -> str:
    """Return what failed, on one bounded line of plain characters; empty if nothing failed."""
    # Slurm's own state of the node is no reason: it would hold the node for having been held
    failed = [item for item in findings if item.status is Status.FAILED and item.check != SLURM_STATE.id]
    if not failed:
        return ""
    name = f"{failed[0].check} {failed[0].subject}".strip()
    text = re.sub(r"[^ -~]", "?", " ".join(f"{name}: {failed[0].actual}".split())).replace('"', "'")
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    room = _LONGEST_REASON - len(_MARK) - len(more)
    return _MARK + (text if len(text) <= room else text[: room - 3] + "...") + more


def update_node(transport: Transport, host: Host, findings: Iterable[Finding], *, resume: bool) -> str:
    """Drain or resume the node in Slurm and return what was done. A node that another drained stays as it is."""
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    node = _NODE.search(_scontrol(transport, host, "show", "node", name).strip())
    if node is None:
        raise UnreachableError(f"scontrol names no state of node {name}")
    wanted, drained, reason = drain_reason(findings), "DRAIN" in node[1], node[2] or ""
    if drained and not reason.startswith(_MARK):
        return f"{name} is drained already: {reason}" if wanted else ""
    if wanted and wanted != reason:
        _scontrol(transport, host, "update", f"NodeName={name}", "State=DRAIN", f"Reason={wanted}")
        return f"{name} is drained: {wanted}"
    if resume and drained and not wanted:
        _scontrol(transport, host, "update", f"NodeName={name}", "State=RESUME")
        return f"{name} is given back: nothing fails any more ({reason})"
    return ""


def _scontrol(transport: Transport, host: Host, *args: str) -> str:
    done = transport.run(host, ["scontrol", "--oneliner", *args], timeout_s=60)
    if not done.ok:
        remedy = "run it on this node as root; only Slurm's operators may drain a node"
        raise UnreachableError(f"scontrol {args[0]}: {done.error or done.stderr.strip()}", remedy)
    return done.stdout
