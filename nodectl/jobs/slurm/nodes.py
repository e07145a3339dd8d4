"""Nodes by name that are to be taken from Slurm: whether it could give them at all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodectl.common.nodeset import expand, fold
from nodectl.errors import UsageError
from nodectl.jobs.slurm.login import Login

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NODE = re.compile(r"^NodeName=(\S+).*? State=(\S+)(?:.*? Reason=(.*?)(?: \[| [A-Z]\w+=|$))?", re.MULTILINE)
_AWAY = ("DRAIN", "DOWN", "FAIL", "NOT_RESPONDING")


def refuse_strange(login: Login, nodes: Sequence[str], reservation: str) -> None:
    """Raise UsageError for nodes that Slurm does not know, gives to nobody, or keeps outside the reservation."""
    inside = _inside(login, reservation) if reservation else set(nodes)
    if outside := [name for name in nodes if name not in inside]:
        raise UsageError(
            f"{fold(outside)}: not in Slurm's reservation {reservation}, which has {fold(inside) or 'no nodes'}",
            f"leave them out with --limit, or `scontrol update reservation={reservation} nodes+={','.join(outside)}`",
        )
    remedy = "leave out with --limit what is no node of Slurm"
    text = login.scontrol("--oneliner", "show", "node", ",".join(nodes), remedy=remedy)
    for name, state, reason in _NODE.findall(text):
        if any(word in state for word in _AWAY):
            raise UsageError(
                f"{name} is {state} in Slurm{f' ({reason})' if reason else ''}: it is given to no job",
                f"`scontrol update nodename={name} state=resume`, in a reservation if no job is to have it; "
                "or leave out --via slurm: nobody's jobs run there",
            )


def _inside(login: Login, reservation: str) -> set[str]:
    if not _NAME.fullmatch(reservation):
        raise UsageError(f"--reservation {reservation!r}: no name of a reservation", "name one")
    remedy = "`scontrol show reservation` lists them"
    text = login.scontrol("--oneliner", "show", "reservation", reservation, remedy=remedy)
    found = re.search(r" Nodes=(\S+)", text)
    return set(expand(found[1]) or ()) if found else set()
