"""NCCL Inspector in a job's ranks: where its plug-in is, its variables, and a summary of the lines that it writes.

Read in NCCL 2.28.3 to 2.30.7 (ext-profiler/inspector, later plugins/profiler/inspector): each rank appends a line of
JSON a recorded collective (`header`, `metadata`, `coll_perf` or `p2p_perf`) to HOSTNAME-pidPID.log. NCCL hands plug-ins
of its interface v5 events since 2.28; neither NVIDIA's wheels nor its packages hold the plug-in.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import shutil
import time
from statistics import median
from typing import Any, Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from . import outputs
from .folder import JobFolder

PLUGIN, FOLDER = "NCCL_PROFILER_PLUGIN", "NCCL_INSPECTOR_DUMP_DIR"
FILE = "libnccl-profiler-inspector.so"
_SUMMARY = "inspect.json"
_PLACES = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/opt/nccl*/lib")
_EVERY_US, _RING = 1_000_000, 64  # so many collectives a second, communicator and rank are written at most
_LOOK_BYTES, _LEAST_BYTES = 128 * 1024, 8 * 1024
_LONGEST_LINE = 32 * 1024
_KEPT_BYTES, _LIMIT_BYTES = 1 << 20, 8 << 20  # of a rank's file
_MOST_FILES, _MOST_SERIES, _MOST_ROWS = 64, 1000, 64
_KEPT = 64
_WRITE_S = 5.0
_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MOST = 1 << 53


def find(named: str, venv: str) -> str:
    """Return the plug-in's path, the one named first; a bare name is the loader's to find; "" where it is nowhere."""
    if named:
        return named if "/" not in named or os.path.isfile(named) else ""
    import glob

    folders = (
        [*glob.glob(os.path.join(glob.escape(venv), "lib/python3*/site-packages/nvidia/nccl/lib"))] if venv else []
    )
    folders += [folder for place in _PLACES for folder in sorted(glob.glob(place))]
    return next((path for folder in folders if os.path.isfile(path := os.path.join(folder, FILE))), "")


def variables(env: Mapping[str, str], venv: str, job: JobFolder) -> Dict[str, str]:
    """Return what the ranks' environment lacks; what it has is the operator's, and stays."""
    ours = {
        PLUGIN: find("", venv),
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": str(_EVERY_US),
        "NCCL_INSPECTOR_DUMP_COLL_RING_SIZE": str(_RING),
        "NCCL_INSPECTOR_DUMP_P2P_RING_SIZE": str(_RING),
        FOLDER: job.at("inspect"),
    }
    return {name: value for name, value in ours.items() if name not in env}


class _Key(NamedTuple):
    """Hold what is summed up together: a communicator's collectives of a kind and size (a power of two), by rank."""

    rank: Optional[int]
    comm: str
    place: int
    ranks: int
    nodes: int
    kind: str
    power: int


class _Record(NamedTuple):
    key: _Key
    size_bytes: int
    time_us: int
    busbw_gbs: float


def read_line(line: bytes, rank: Optional[int], world: int) -> Optional[_Record]:
    """Return what a line records; None for one that is damaged, or of another form."""
    try:
        document = json.loads(line.strip(b"\0"))
        header, perf, prefix = document["header"], document.get("coll_perf"), "coll"
        if perf is None:
            perf, prefix = document["p2p_perf"], "p2p"
        comm, kind = header["id"], perf[prefix]
        place, ranks, nodes = (_whole(header[name]) for name in ("rank", "n_ranks", "nnodes"))
        size, time_us = (_whole(perf[f"{prefix}_{name}"]) for name in ("msg_size_bytes", "exec_time_us"))
        busbw = float(perf[f"{prefix}_busbw_gbs"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not (_WORD.fullmatch(comm) and _WORD.fullmatch(kind) and 0 < busbw < 1e6 and size > 0):  # nan is in no range
        return None
    if rank is None and ranks == world:
        rank = place
    return _Record(_Key(rank, comm, place, ranks, nodes, kind, size.bit_length()), size, time_us, busbw)


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{value!r} is no count")
    return value


class _Series:
    def __init__(self) -> None:
        self.count, self.time_us = 0, 0
        self.sizes: Deque[int] = collections.deque(maxlen=_KEPT)
        self.busbw: Deque[float] = collections.deque(maxlen=_KEPT)
        self.at = 0.0

    def note(self, record: _Record) -> None:
        self.count += 1
        self.time_us += record.time_us
        self.sizes.append(record.size_bytes)
        self.busbw.append(record.busbw_gbs)
        self.at = time.time()


class Inspector:
    """Reads what the ranks of an attempt write, keeps its summary in a file, and the files below their limit."""

    def __init__(self, job: JobFolder, plan: Mapping[str, Any]) -> None:
        self._job, self._folder = job, job.at("inspect")
        self._world = int(plan["nproc_per_node"]) * len(plan["hosts"])
        self._tails: Dict[str, outputs.Tail] = {}
        self._series: Dict[_Key, _Series] = {}
        self._written_s = 0.0
        self._is_new = False
        for path in (self._folder, job.at(_SUMMARY)):  # of attempts before
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def look(self, *, last: bool = False) -> None:
        """Read what has come since the last time, of each file a part at most; `last` has the summary written now."""
        files = sorted(_files(self._folder))
        for path, rank in files[:_MOST_FILES]:
            tail = self._tails.setdefault(path, outputs.Tail(0, _LONGEST_LINE))
            for _, line in tail.read(path, max(_LEAST_BYTES, _LOOK_BYTES // len(files))):
                record = read_line(line, rank, self._world)
                if record is not None and (record.key in self._series or len(self._series) < _MOST_SERIES):
                    self._series.setdefault(record.key, _Series()).note(record)
                    self._is_new = True
        for path, _ in files:
            _cut(path, self._tails[path].offset if path in self._tails else 0)
        if self._is_new and (last or time.monotonic() - self._written_s > _WRITE_S):
            self._write()

    def _write(self) -> None:
        """Write the rows of those that take the most time; a disk that is full keeps the last ones."""
        self._written_s, self._is_new = time.monotonic(), False
        most = sorted(self._series.items(), key=lambda item: -item[1].time_us)[:_MOST_ROWS]
        path = self._job.at(_SUMMARY)
        with contextlib.suppress(OSError):
            with open(f"{path}.new", "w", encoding="ascii") as file:
                json.dump([_row(key, series) for key, series in most], file)
            os.replace(f"{path}.new", path)


def _row(key: _Key, series: _Series) -> Dict[str, Any]:
    return {
        **key._asdict(),
        "size_bytes": int(median(series.sizes)),
        "count": series.count,
        "time_us": series.time_us,
        "busbw_gbs": round(median(series.busbw), 3),
        "at": series.at,
    }


def _files(folder: str) -> Iterator[Tuple[str, Optional[int]]]:
    """Yield the files and their ranks: in_rank/sitecustomize.py gives each Python its own folder."""
    for entry in _entries(folder):
        if re.fullmatch(r"\d{1,7}", entry.name) and entry.is_dir(follow_symlinks=False):
            yield from ((file.path, int(entry.name)) for file in _entries(entry.path) if _is_log(file))
        elif _is_log(entry):
            yield entry.path, None


def _entries(folder: str) -> List[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_log(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".log") and entry.is_file(follow_symlinks=False)


def _cut(path: str, read_bytes: int) -> None:
    """Give the older part of a large file back, or all of it where it is not read, or cannot have holes."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_blocks * 512 <= _LIMIT_BYTES:
            return
        try:
            outputs.punch(path, (read_bytes - _KEPT_BYTES) // 4096 * 4096)
        except (OSError, ValueError):
            os.truncate(path, 0)


def summary(job: JobFolder) -> List[Dict[str, Any]]:
    """Return the rows of this host; none where the job is not inspected, or nothing was written yet."""
    try:
        with open(job.at(_SUMMARY), "rb") as file:
            rows = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return []
    return rows if isinstance(rows, list) else []
