"""Nodes by name that are to be taken from Slurm: whether it could give them at all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodectl.common.nodeset import expand, fold
from nodectl.errors import UsageError
from nodectl.jobs.slurm.login import Login

_NODE = re.compile(r"^NodeName=(\S+).*? State=(\S+)(?:.*? Reason=(.*?)(?: \[| [A-Z]\w+=|$))?", re.MULTILINE)
# a node that is POWERED_DOWN is started for a job
_AWAY = {"DRAIN", "DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING"}


def refuse_strange(login: Login, nodes: Sequence[str], reservation: str) -> None:
    """Raise UsageError for nodes that Slurm does not know, gives to nobody, or keeps outside the reservation."""
    if reservation:
        remedy = "`scontrol show reservation` lists them"
        shown = login.scontrol("--oneliner", "show", "reservation", reservation, remedy=remedy)
        inside = {name for pattern in re.findall(r" Nodes=(\S+)", shown) for name in expand(pattern) or ()} - {"(null)"}
        if outside := [name for name in nodes if name not in inside]:
            more = f"`scontrol update reservation={reservation} nodes+={','.join(outside)}`"
            raise UsageError(
                f"{fold(outside)}: not in Slurm's reservation {reservation}, which has {fold(inside) or 'no nodes'}",
                f"leave them out with --limit, or {more}",
            )
    remedy = "leave out with --limit what is no node of Slurm"
    text = login.scontrol("--oneliner", "show", "node", ",".join(nodes), remedy=remedy)
    for name, state, reason in _NODE.findall(text):
        if _AWAY & set(re.findall("[A-Z_]+", state)):
            raise UsageError(
                f"{name} is {state} in Slurm{f' ({reason})' if reason else ''}: it is given to no job",
                f"`scontrol update nodename={name} state=resume`, in a reservation if no job is to have it; "
                "or leave out --via slurm: nobody's jobs run there",
            )
