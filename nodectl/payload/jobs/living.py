"""What the ranks that still live are doing: state of the process, and the stacks that their Python writes."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Sequence

from ..common.patterns import lazily
from . import notes
from .classify import aside
from .evidence import Output, log_of
from .process import below, read_stat, send
from .ranks import Rank

_ANSWER_S = 0.5
_POLL_S = 0.01
FRAMES = 16
_FRAME = lazily(r'^  File "(.*)", line (\d+) in (.*)$')
_THREAD = lazily(r"^(?:Current thread|Thread) 0x", re.M)


def look(job: str, ranks: Sequence[Rank]) -> List[Dict[str, Any]]:
    """Return a row a rank: `rank`, `state` (a letter of /proc), its main thread's `stack`, newest first (or empty)."""
    asked = {rank.rank: _ask(job, rank) for rank in ranks}
    until_s = time.monotonic() + _ANSWER_S
    answers: Dict[int, List[str]] = {}
    while time.monotonic() < until_s and len(answers) < sum(size >= 0 for size in asked.values()):
        time.sleep(_POLL_S)
        for number, size in asked.items():
            text = _written_since(job, number, size) if size >= 0 and number not in answers else ""
            if text:
                answers[number] = main_stack(text)
    return [{"rank": rank.rank, "state": _state(rank), "stack": answers.get(rank.rank, [])} for rank in ranks]


def with_asides(
    rows: Sequence[Dict[str, Any]], ranks: Sequence[Rank], logs: str, output: Output
) -> List[Dict[str, Any]]:
    """Add to each row of `look` what a rank's log holds of exceptions that ended no more than a part of it."""
    told = {rank.rank: log_of(logs, output, rank.local_rank) for rank in ranks}
    asides = {number: "" if log["shared"] else aside(log["log"]) for number, log in told.items()}
    return [{**row, "aside": asides.get(row["rank"], "")} for row in rows]


def _ask(job: str, rank: Rank) -> int:
    """Have the stacks written; the size of their file before that, -1 where nobody would write."""
    watch = notes.watch_of(job, rank.rank)
    place = os.path.join(job, "notes", f"{rank.rank}.stacks")
    if not watch:
        return -1
    for pid in (rank.pid, *sorted(below(rank.pid, set()))):
        # a program that has closed the handle may have given its number to a file of its own
        try:
            if os.path.samefile(f"/proc/{pid}/fd/{watch['handle']}", place):
                size = os.path.getsize(place)
                send(pid, watch["signal"])
                return size
        except OSError:
            continue
    return -1


def _state(rank: Rank) -> str:
    stat = read_stat(rank.pid)
    return stat.state if stat is not None else "X"


def _written_since(job: str, rank: int, size: int) -> str:
    """Return what has been written, when it is whole: the main thread's stack is the last."""
    try:
        with open(os.path.join(job, "notes", f"{rank}.stacks"), "rb") as file:
            file.seek(size)
            text = file.read(256 * 1024).decode(errors="replace")
    except OSError:
        return ""
    return text if _THREAD.search(text) and text.endswith("\n") and _FRAME.match(text.splitlines()[-1]) else ""


def main_stack(text: str) -> List[str]:
    """`file:line function` of the thread that faulthandler writes last, newest first."""
    last = text[max((match.start() for match in _THREAD.finditer(text)), default=0) :]
    frames = [match.groups() for match in map(_FRAME.match, last.splitlines()) if match]
    return [f"{name}:{line} {function}" for name, line, function in frames[:FRAMES]]
