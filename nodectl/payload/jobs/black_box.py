"""Keeps what a job did before anybody looked: taken by the supervisor where the job may hang, and before its end.

A taking is a file of JSON lines in `black_box/` of the job's folder, a line as soon as its part is known, on the disk
before the next is asked for: who is killed in the middle leaves what he had.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

from ..common import machine
from ..common.bounds import fitted
from . import living, notes, waiting
from .folder import JobFolder
from .process import all_pids, read_stat, read_text, spawn_payload
from .rhythm import LEAST_S

FOLDER = "black_box"
SUSPICION, END = "suspicion", "end"
_MOST_S, _TOOL_S = 5, 3.0
_WHY_CHARS = 1000
_MOST_BYTES = 4 << 20  # of a taking
_TEXT_BYTES = 256 << 10
_KEPT = 3
_TOP = 10
_APART_S = 30.0  # between two takings
_LAST_WORDS_S = 60.0
Row = Dict[str, Any]


class Doubts:
    """A host's suspicions that an attempt hangs, and whether a taking followed or the attempt went on."""

    def __init__(self) -> None:
        self.suspicions = self._followed = 0
        self.taken_s: Optional[float] = None
        self._resumed_s: Optional[float] = None
        self._why = ""

    def suspect(self, why: str) -> None:
        """Note a suspicion of this host."""
        self.suspicions += 1
        self._why = why

    def has_passed(self, stood_s: float, now_s: float) -> bool:
        """Tell once whether the attempt has gone on for a while since a taking; the last words of one are no progress.

        No host has told progress for `stood_s`.
        """
        if self.taken_s is None or stood_s > now_s - self.taken_s:
            return False
        self._resumed_s = self._resumed_s or now_s
        if now_s - self._resumed_s < _LAST_WORDS_S:
            return False
        self.taken_s = self._resumed_s = None
        return True

    def why(self, elsewhere: int, stood_s: float, now_s: float) -> str:
        """Return why a taking is due, or ""; `elsewhere` counts the other hosts' suspicions."""
        told = elsewhere + self.suspicions
        if told <= self._followed or (self.taken_s is not None and now_s - self.taken_s <= _APART_S):
            return ""
        self._followed = told
        why, self._why = self._why or "another host tells that the job stands still", ""
        return why if stood_s >= LEAST_S else ""


def start(job: JobFolder, attempt: int, kind: str, why: str) -> int:
    """Start a taking as a process of its own, which a disk or a tool that hangs may hold; return its pid.

    `why` may quote a script's exception, and so stands in no command line.
    """
    text = why[:_WHY_CHARS].encode(errors="backslashreplace")
    return spawn_payload("jobs.black_box", job.id, str(attempt), kind, stdin=text)


def main(argv: List[str]) -> int:
    """Take: `JOB ATTEMPT KIND`, and why on stdin."""
    signal.alarm(_MOST_S)
    os.umask(0o077)
    job_id, attempt, kind = argv
    take(JobFolder(job_id), int(attempt), kind, sys.stdin.buffer.read().decode(errors="replace"))
    return 0


def take(job: JobFolder, attempt: int, kind: str, why: str) -> None:
    """Write the parts of a taking, the ranks' stacks first: at the end of an attempt they live for a second more."""
    folder = job.at(FOLDER)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)  # not its parents: `jobs clean` may have removed the job meanwhile
    if os.path.islink(folder):
        raise OSError(f"{folder} is a link")
    head = {"at": time.time(), "attempt": attempt, "kind": kind, "why": why}
    with open(os.path.join(folder, f"{time.time_ns()}.{kind}.jsonl"), "xb", buffering=0) as file:
        for part in _parts(job):
            _write(file, {**head, "now": time.time()}, part)
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))[:-_KEPT]:
        os.unlink(os.path.join(folder, name))


def _parts(job: JobFolder) -> Iterator[Row]:
    looks = living.looks(job, _TOOL_S)
    yield next(looks)
    mounts = (line.split() for line in read_text("/proc/mounts").splitlines())
    disks = [words[1] for words in mounts if words[0].startswith("/dev/")]
    full_disks = list(dict.fromkeys(notes.full_disks(job.path, *disks)))[:_TOP]
    yield {"host": {"memory": read_text("/proc/meminfo"), "blocked": _processes_in_kernel_wait(), "full": full_disks}}
    yield from looks
    yield {"host": {"smi": (machine.smi("-q", timeout_s=_TOOL_S) or "")[:_TEXT_BYTES]}}


def _write(file: BinaryIO, head: Row, part: Row) -> None:
    """Add a line, on the disk when this returns; its texts are cut to what is left of the size."""
    left = _MOST_BYTES - file.tell() - 1
    data = fitted(lambda cut: {**head, **cut(part)}, left)
    if len(data) <= left:
        file.write(data + b"\n")
        os.fsync(file)


def forget(job: JobFolder) -> None:
    """Remove the suspicions: the job went on."""
    with contextlib.suppress(OSError):
        for name in os.listdir(job.at(FOLDER)):
            if name.endswith(f".{SUSPICION}.jsonl") and not os.path.islink(job.at(FOLDER)):
                os.unlink(job.at(FOLDER, name))


def read(job: JobFolder) -> List[Row]:
    """Return the takings, oldest first: `at`, `attempt`, `kind`, `why`, `host`, and the report as of `examine`.

    `times` has the moment at which each part was read.
    """
    takings: Dict[Tuple[float, str], Row] = {}
    for line in _lines(job):
        taking = takings.setdefault((float(line["at"]), str(line["kind"])), _EMPTY)
        now = line.pop("now", line["at"])
        ranks = {row["rank"]: row for row in taking["ranks"]}
        ranks.update({row["rank"]: row for row in line.get("ranks", ()) if _tells_more(row, ranks.get(row["rank"]))})
        host = {**taking["host"], **line.get("host", {})}
        times = {**taking["times"], **dict.fromkeys((*line, *line.get("host", ())), now)}
        merged = {**taking, **line, "host": host, "ranks": list(ranks.values()), "times": times}
        takings[float(line["at"]), str(line["kind"])] = merged
    return [takings[key] for key in sorted(takings)]


def _tells_more(row: Row, before: Optional[Row]) -> bool:
    """Tell whether a later look at a rank replaces one: the rank may have ended, or not answered."""
    return bool(row["stack"]) or before is None or (not before["stack"] and row["state"] not in "XZ")


_EMPTY: Row = {
    **{name: [] for name in ("ranks", "gpus", "xids")},
    **{name: {} for name in ("network", "flight", "host", "times")},
    "ras": "",
}


def _lines(job: JobFolder) -> Iterator[Row]:
    try:
        names = sorted(os.listdir(job.at(FOLDER)))
    except OSError:
        return
    for name in names:
        for text in _plain_file_bytes(job.at(FOLDER, name)).splitlines():
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and {"at", "attempt", "kind", "why"} <= set(line):
                    yield line


def _plain_file_bytes(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(_MOST_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return b""


def _processes_in_kernel_wait() -> List[str]:
    stats = ((pid, read_stat(pid)) for pid in all_pids())
    waiting_pids = [pid for pid, stat in stats if stat is not None and stat.state == "D"]
    return [
        f"D {pid} {waiting.call(pid) or '-'} {waiting.command(pid).partition(' ')[0]}" for pid in waiting_pids[:_TOP]
    ]
