"""Tells whether a living rank waits in a collective: by its state and stack, or by the power of GPUs."""

from __future__ import annotations

from typing import AbstractSet, Any, Mapping, Optional, Sequence

from ..common.patterns import lazily

COLLECTIVES = lazily(
    r"[/\\]torch[/\\](?:distributed[/\\](?!run\.py|launcher|elastic)|nn[/\\]parallel[/\\]distributed|autograd[/\\])"
)
_LIBRARY = lazily(r"site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen ")

# the failure classes of ranks that waited for others in vain
WAITED = ("collective_timeout", "rendezvous")

# evidence added to the name of a rank that was elsewhere
NO_GROUPS = "perhaps others waited for another rank: of which process groups their calls were is not known"


def in_collective(rank: Mapping[str, Any]) -> bool:
    """Tell whether a living rank's main thread is in torch's communication; True also if its stack is not known."""
    if rank["state"] in "tTD":
        return False
    stack = rank["stack"]
    return not stack or any(COLLECTIVES.search(frame) for frame in stack)


_MEETS = lazily(r"[/\\]torch[/\\]distributed[/\\]rendezvous\.py")


def meets(rank: Mapping[str, Any]) -> bool:
    """Tell whether a rank's newest call asks for the store at which ranks find each other."""
    return bool(rank["stack"]) and bool(_MEETS.search(rank["stack"][0]))


def is_leaving(rank: Mapping[str, Any]) -> bool:
    """Tell whether only library code runs in a rank: its program has ended, or has not begun."""
    return bool(rank["stack"]) and all(_LIBRARY.search(frame) for frame in rank["stack"])


def stayed_away(rank: Mapping[str, Any], broke: AbstractSet[Optional[int]]) -> bool:
    """Tell whether a living rank was elsewhere while others waited in a collective.

    Ranks in `broke`, whose collective failed, had been in it, and may have been seen only after they left it.
    """
    return not in_collective(rank) and not (rank["rank"] in broke and is_leaving(rank))


def doing(rank: Mapping[str, Any]) -> str:
    """Return a phrase on what a living rank does, and waits for: `it is at train.py:33 load, in read() of /data/x`."""
    return _place(rank) + ("" if rank["stack"] and in_collective(rank) else _call(rank) + _helper(rank))


UNKNOWN = "what it does is not known"
_COMPUTES = 0.5  # of a core


def _call(rank: Mapping[str, Any]) -> str:
    if rank["state"] == "R" or rank.get("cpu", 0.0) >= _COMPUTES:
        return ", and computes"
    return f", in {rank['call']}" if rank.get("call") and rank["state"] not in "tT" else ""


_OF_CHILDREN = lazily(
    r"[/\\]torch[/\\]utils[/\\]data|[/\\]multiprocessing[/\\]|[/\\]subprocess\.py|concurrent[/\\]futures"
)


# of a child that waits for work
_QUEUE = lazily(
    r"\(\) of (?:pipe|socket|anon_inode):|^(?:futex|p?poll|p?select6?|epoll_\w+)\(\)$|^$|_poll|poll_|pipe_|futex_"
)


def _is_busy(child: Mapping[str, Any]) -> bool:
    newest = next(iter(child["stack"]), "site-packages")
    return child["state"] == "R" or not _QUEUE.search(child["call"]) or not _LIBRARY.search(newest)


def _helper(rank: Mapping[str, Any]) -> str:
    """Return a phrase on the child for which a rank seems to wait: one that is stopped, blocked or dead first."""
    library = next((place for place, frame in enumerate(rank["stack"]) if not _LIBRARY.search(frame)), 0)
    asks = any(_OF_CHILDREN.search(frame) for frame in rank["stack"][:library])
    halted = [child for child in rank.get("helpers", ()) if child["state"] in "tTDZX"]
    busy = [child for child in rank.get("helpers", ()) if _is_busy(child)]
    first = next(iter((*halted, *busy)), None)
    if first is None or not (asks or rank.get("call", "").startswith("wait")):
        return ""
    what = "data-loader worker" if "utils/data" in " ".join(rank["stack"]) else "child process"
    does = doing(first).replace(f"{UNKNOWN}, in ", "it is in ")
    return f"; it waits for its {what} {first['pid']} ({first['command']}): {does}"


def _place(rank: Mapping[str, Any]) -> str:
    program_frame = next((frame for frame in rank["stack"] if not _LIBRARY.search(frame)), None)
    place = program_frame or (rank["stack"][0] if rank["stack"] else "")
    if rank["state"] in "tT":
        return "it is stopped (SIGSTOP, or a debugger)" + (f", called at {place}" if place else "")
    if rank["state"] == "D":
        return "it waits in the kernel, for a disk or a device (state D)" + (f", called at {place}" if place else "")
    if rank["state"] in "ZX":
        return "it has ended"
    return f"it is at {place}" if place else UNKNOWN


def absence(rank: Mapping[str, Any], category: str, who: str) -> str:
    """Return the sentence about a living rank for which ranks `who` waited; `category` is their failures' class."""
    where = "meeting" if category == "rendezvous" else "collective"
    return f"it did not come to the {where} in which {who} waited: {doing(rank)}"


def left_early(who: str) -> str:
    """Return the sentence about a rank that ended well while ranks `who` still needed it."""
    return f"it ended with exit status 0 while {who} waited for it in a collective"


# a GPU that waits in a collective counts as used, and draws little
_BUSY_PERCENT, _IDLE_SHARE = 90.0, 0.3


def gpus_wait(rows: Sequence[Mapping[str, Optional[float]]]) -> bool:
    """Tell whether GPUs (rows as of `pulse.gpu_rows`) are all in use and together draw little: they hardly compute."""
    uses, powers, limits = (
        [value for row in rows if (value := row[name]) is not None] for name in ("use_percent", "power_w", "limit_w")
    )
    if not uses or not sum(powers) or not sum(limits):
        return False
    return sum(uses) / len(uses) >= _BUSY_PERCENT and sum(powers) < _IDLE_SHARE * sum(limits)
