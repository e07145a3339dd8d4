"""NCCL Inspector in a job's ranks: where its plug-in is, its variables, and a summary of the lines that it writes.

Read in NCCL 2.28.3 to 2.30.7 (ext-profiler/inspector, later plugins/profiler/inspector): each rank appends a line of
JSON a recorded collective (`header`, `metadata`, `coll_perf` or `p2p_perf`) to HOSTNAME-pidPID.log. NCCL hands plug-ins
of its interface v5 events since 2.28; neither NVIDIA's wheels nor its packages hold the plug-in.
"""

from __future__ import annotations

import collections
import contextlib
import glob
import json
import os
import re
import time
from statistics import median
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import outputs
from .folder import JobFolder

PLUGIN = "NCCL_PROFILER_PLUGIN"
_FILE, _FOLDER, _SUMMARY = "libnccl-profiler-inspector.so", "inspect", "inspect.json"
_PLACES = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/opt/nccl*/lib")
_SETTINGS = {
    "NCCL_INSPECTOR_ENABLE": "1",
    # whole seconds: before 2.29.7 the rest of a second is taken for nanoseconds, and it would never sleep
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000000",
    # so many of a communicator are written each time: few, so that a look can read those of all communicators
    "NCCL_INSPECTOR_DUMP_COLL_RING_SIZE": "8",
    "NCCL_INSPECTOR_DUMP_P2P_RING_SIZE": "8",
}
_LOOK_BYTES, _LEAST_BYTES, _LONGEST_LINE = 512 << 10, 8 << 10, 32 << 10
_KEPT_BYTES, _LIMIT_BYTES = 1 << 20, 8 << 20  # of a rank's file
_MOST_FILES, _MOST_SERIES, _MOST_ROWS, _KEPT = 64, 1000, 64, 64
_MOST, _MOST_RANKS = 1 << 50, 10**6  # bytes, and microseconds together
_WRITE_S = 5.0
_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")
_KEY = ("rank", "comm", "ranks", "nodes", "kind", "power")
Key = Tuple[Optional[int], str, int, int, str, int]
Row = Dict[str, Any]


def find(named: str, venv: str) -> str:
    """Return the plug-in's path, the one named first; a bare name is the loader's to find; "" where it is nowhere."""
    if named:
        return named if "/" not in named or os.path.isfile(named) else ""
    places = [os.path.join(glob.escape(venv), "lib/python3*/site-packages/nvidia/nccl/lib")] if venv else []
    paths = (path for place in (*places, *_PLACES) for path in sorted(glob.glob(os.path.join(place, _FILE))))
    return next(paths, "")


def variables(env: Mapping[str, str], venv: str, job: JobFolder) -> Dict[str, str]:
    """Return what the ranks' environment lacks; what it has is the operator's, and stays."""
    ours = {PLUGIN: find("", venv), "NCCL_INSPECTOR_DUMP_DIR": job.at(_FOLDER), **_SETTINGS}
    return {name: value for name, value in ours.items() if name not in env}


def read_line(line: bytes, rank: Optional[int], world: int) -> Optional[Tuple[Key, int, int, float]]:
    """Return whose and which collective a line tells, its bytes, microseconds and GB/s; None for any other line."""
    try:
        document = json.loads(line.strip(b"\0"))
        header, what = document["header"], "coll" if "coll_perf" in document else "p2p"
        perf, comm = document[f"{what}_perf"], header["id"]
        kind, busbw = perf[what], float(perf[f"{what}_busbw_gbs"])
        numbers = [header["rank"], header["n_ranks"], header["nnodes"]]
        numbers += [perf[f"{what}_msg_size_bytes"], perf[f"{what}_exec_time_us"]]
        words = _WORD.fullmatch(comm) and _WORD.fullmatch(kind)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    is_whole = all(type(one) is int and 0 <= one < _MOST for one in numbers)
    if not (words and 0 < busbw < 1e6 and is_whole and numbers[3] and max(numbers[:3]) < _MOST_RANKS):
        return None
    place, ranks, nodes, size, time_us = numbers
    rank = place if rank is None and ranks == world else rank
    return (rank, comm, ranks, nodes, kind, size.bit_length()), size, time_us, busbw


class Inspector:
    """Reads what the ranks of an attempt write, keeps its summary in a file, and the files below their limit."""

    def __init__(self, job: JobFolder, plan: Mapping[str, Any]) -> None:
        self._folder, self._summary = os.path.realpath(job.at(_FOLDER)), job.at(_SUMMARY)
        self._world = int(plan["nproc_per_node"]) * len(plan["hosts"])
        self._tails: Dict[str, outputs.Tail] = {}
        self._rows: Dict[Key, Row] = {}
        self._written_s, self._is_new = 0.0, False
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        for path in (*self._files(), self._summary):  # of attempts before
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _files(self) -> List[str]:
        """Return the ranks' files: in_rank/sitecustomize.py gives each Python a folder of its own."""
        paths = [path for form in ("*.log", "*/*.log") for path in glob.glob(os.path.join(self._folder, form))]
        return sorted(path for path in paths if os.path.isfile(path) and os.path.realpath(path) == path)

    def look(self, *, last: bool = False) -> None:
        """Read what has come since the last time, of each file a part at most; `last` has the summary written now."""
        files = self._files()
        for path in files[:_MOST_FILES]:
            place = os.path.basename(os.path.dirname(path))
            rank = int(place) if re.fullmatch(r"[0-9]{1,7}", place) else None
            tail = self._tails.setdefault(path, outputs.Tail(0, _LONGEST_LINE))
            for _, line in tail.read(path, max(_LEAST_BYTES, _LOOK_BYTES // len(files))):
                self._note(line, rank)
        for path in files:
            _cut(path, self._tails[path].offset if path in self._tails else 0)
        if self._is_new and (last or time.monotonic() - self._written_s > _WRITE_S):
            self._write()

    def _note(self, line: bytes, rank: Optional[int]) -> None:
        told = read_line(line, rank, self._world)
        if told is None or (told[0] not in self._rows and len(self._rows) >= _MOST_SERIES):
            return
        key, size, time_us, busbw = told
        row = self._rows.setdefault(key, {"count": 0, "time_us": 0, "recent": collections.deque(maxlen=_KEPT)})
        row["count"], row["time_us"], row["at"] = row["count"] + 1, min(_MOST, row["time_us"] + time_us), time.time()
        row["recent"].append((size, busbw))
        self._is_new = True

    def _write(self) -> None:
        """Write the rows of those that take the most time; a disk that is full keeps the last ones."""
        self._written_s, self._is_new = time.monotonic(), False
        most = sorted(self._rows.items(), key=lambda item: -item[1]["time_us"])[:_MOST_ROWS]
        with contextlib.suppress(OSError):
            with open(f"{self._summary}.new", "w", encoding="ascii") as file:
                json.dump([_told(key, row) for key, row in most], file)
            os.replace(f"{self._summary}.new", self._summary)


def _told(key: Key, row: Row) -> Row:
    sizes, busbws = zip(*row["recent"])  # noqa: B905 - Python 3.8
    more = {"size_bytes": int(median(sizes)), "busbw_gbs": round(median(busbws), 3)}
    return {**dict(zip(_KEY, key)), **{name: row[name] for name in ("count", "time_us", "at")}, **more}  # noqa: B905


def _cut(path: str, read_bytes: int) -> None:
    """Give the older part of a large file back, or all of it where it is not read, or cannot have holes."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_blocks * 512 <= _LIMIT_BYTES:
            return
        try:
            outputs.punch(path, (read_bytes - _KEPT_BYTES) // 4096 * 4096)
        except OSError:
            os.truncate(path, 0)


def summary(job: JobFolder) -> Optional[List[Row]]:
    """Return the rows of this host, none where nothing was written yet; None where the job is not inspected."""
    if not os.path.isdir(job.at(_FOLDER)):
        return None
    try:
        with open(job.at(_SUMMARY), "rb") as file:
            rows = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return []
    return rows if isinstance(rows, list) else []
