"""The traces that a job's ranks left on this host: where each step's time went, and their files for who gathers them.

As a program it sends one file: `jobs.traces JOB NAME`, in frames of `data` (base64), then one of `end` (its size).

A step's time is parted, each moment once. With a GPU: `compute` (its kernels), `copy` (memory copies beside no kernel),
`communication` (kernels of collectives beside neither), `loading` (the script waits for its DataLoader meanwhile), and
`idle`. Without: `loading`; `optimizer`, `backward` and `forward` (operators of torch, by what they run in);
`communication` (a collective runs and no operator), and `idle`: no operator runs, so Python, or other libraries.
`collectives` is all the time of collectives, also that beside computing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import os
import re
import stat
from bisect import bisect_left, bisect_right
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..common.frames import exit_status, send
from . import nsys
from .chrome_trace import Event, TraceError, read_events
from .folder import JobFolder, JobFolderError, write_atomic

_NOTE = re.compile(r"(\d{1,7})\.note\.json")
_FILE = re.compile(r"\d{1,7}\.(json\.gz|nsys-rep)")
_NOTE_BYTES = 64 << 10
_SUMMARY_BYTES = 4 << 20
_CHUNK_BYTES = 512 << 10
_MOST_AT_ONCE = 8
_ENDINGS = {"torch": "json.gz", "nsys": "nsys-rep"}


def main(argv: List[str]) -> int:
    """Send a trace's file; 1 with the reason where it is none."""
    return exit_status(lambda: _send(JobFolder(argv[0]), argv[1]), JobFolderError)


def _send(job: JobFolder, name: str) -> None:
    if not _FILE.fullmatch(name):
        raise JobFolderError(f"{name!r} is no trace")
    handle = os.open(job.at("traces", name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise JobFolderError(f"{name} is no file")
        sent = 0
        while True:
            data = file.read(_CHUNK_BYTES)
            if not data:
                break
            send({"data": base64.b64encode(data).decode()})
            sent += len(data)
    send({"end": sent})


def look(job: JobFolder) -> List[Dict[str, Any]]:
    """Return, by rank that was to be traced here, its note, `file` and `size_bytes`, `summary` or the `problem`."""
    folder = job.at("traces")
    try:
        names = sorted(name for name in os.listdir(folder) if _NOTE.fullmatch(name))
    except FileNotFoundError:
        return []
    places = [os.path.join(folder, name) for name in names]
    workers = min(_MOST_AT_ONCE, len(places), os.cpu_count() or 1)
    if workers > 1:
        # other ways to start cannot import this package by its name; without semaphores it goes one after the other
        fork = multiprocessing.get_context("fork")
        with contextlib.suppress(OSError, ImportError), ProcessPoolExecutor(workers, fork) as pool:
            return list(pool.map(_row, places))
    return [_row(place) for place in places]


def _row(place: str) -> Dict[str, Any]:
    note = _read(place, _NOTE_BYTES)
    rank = os.path.basename(place).split(".")[0]
    row: Dict[str, Any] = {
        "rank": int(rank),
        "attempt": _number(note.get("attempt")),
        "optimizer_steps": _number(note.get("optimizer_steps")),
        "tool": str(note.get("tool", ""))[:20],
        "problem": str(note.get("problem", "its note cannot be read"))[:500],
        "file": "",
        "size_bytes": 0,
        "summary": None,
    }
    if row["problem"]:
        return row
    path = os.path.join(os.path.dirname(place), f"{rank}.{_ENDINGS.get(row['tool'], 'json.gz')}")
    with contextlib.suppress(OSError):
        row["size_bytes"] = os.path.getsize(path)
        row["file"] = os.path.basename(path)
    try:
        row["summary"] = _summary(path)
    except (TraceError, OSError, ValueError) as error:
        row["problem"] = f"{os.path.basename(path)}: {error}"[:500]
    return row


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else 0


def _summary(path: str) -> Dict[str, Any]:
    """Read once: it is kept beside the trace."""
    kept = f"{path}.summary"
    with contextlib.suppress(OSError):
        if os.path.getmtime(kept) >= os.path.getmtime(path) and (summary := _read(kept, _SUMMARY_BYTES)):
            return summary
    read = nsys.read_events if path.endswith(".nsys-rep") else read_events
    summary = summarize(read(path))
    with contextlib.suppress(OSError):
        write_atomic(kept, json.dumps(summary).encode())
    return summary


def _read(path: str, most_bytes: int) -> Dict[str, Any]:
    """Return the document; {} where there is none, or a damaged one."""
    document: Optional[Any] = None
    with contextlib.suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
        data = file.read(most_bytes + 1)
        document = json.loads(data) if len(data) <= most_bytes else None
    return document if isinstance(document, dict) else {}


Interval = Tuple[float, float]
Intervals = List[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """Return the same points without overlaps, in order; empty intervals are left out."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def common(one: Sequence[Interval], other: Sequence[Interval]) -> Intervals:
    """Return what lies in both; each as `union` makes it."""
    shared: Intervals = []
    at = too = 0
    while at < len(one) and too < len(other):
        begin, end = max(one[at][0], other[too][0]), min(one[at][1], other[too][1])
        if begin < end:
            shared.append((begin, end))
        if one[at][1] < other[too][1]:
            at += 1
        else:
            too += 1
    return shared


def within(intervals: Sequence[Interval], begin: float, end: float) -> Intervals:
    """Return what lies between two moments; `intervals` as `union` makes it."""
    first = bisect_right(intervals, (begin, begin)) - 1
    last = bisect_left(intervals, (end, end))
    return common(intervals[max(0, first) : last], [(begin, end)])


def without(one: Sequence[Interval], other: Sequence[Interval]) -> Intervals:
    """Return what lies in `one` alone; each as `union` makes it."""
    rest: Intervals = []
    too = 0
    for begin, end in one:
        while too < len(other) and other[too][1] <= begin:
            too += 1
        place = too
        while place < len(other) and other[place][0] < end:
            if other[place][0] > begin:
                rest.append((begin, other[place][0]))
            begin = max(begin, other[place][1])
            place += 1
        if begin < end:
            rest.append((begin, end))
    return rest


def length(intervals: Sequence[Interval]) -> float:
    """Return the length of all together; each as `union` makes it."""
    return sum(end - begin for begin, end in intervals)


MOST_STEPS = 1000
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
# kernels of NCCL, RCCL, NVSHMEM, MSCCL, and of torch's symmetric memory
_COLLECTIVE_KERNEL = re.compile(r"(?i)nccl|rccl|msccl|nvshmem|multimem_|(one|two)_shot_all_reduce")
_COLLECTIVE_CALL = re.compile(r"(gloo|mpi|ucc):")
# they only hold others, or wait for a collective
_HOLDERS = ("autograd::engine::", "c10d::", "_c10d_functional::", "c10d_functional::", "torch.distributed.")
_COMPACT_AT = 200_000
_MOST_INTERVALS = 2_000_000


class _Set:
    """Intervals as they come; joined now and then, so that nested ones take no room."""

    def __init__(self) -> None:
        self._intervals: Intervals = []
        self._limit = _COMPACT_AT

    def add(self, event: Event) -> None:
        self._intervals.append((event.begin_us, event.end_us))
        if len(self._intervals) > self._limit:
            self._intervals = union(self._intervals)
            self._limit = len(self._intervals) + _COMPACT_AT
            if self._limit > _MOST_INTERVALS:
                raise TraceError("it has more than %d intervals: profile fewer steps (--trace-steps)" % _MOST_INTERVALS)

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def joined(self) -> Intervals:
        return union(self._intervals)


class _Gathered:
    """Sets of a trace's events by what they are."""

    def __init__(self, events: Iterable[Event]) -> None:
        names = (
            "kernel",
            "collective_kernel",
            "copy",
            "collective_call",
            "operator",
            "backward",
            "optimizer",
            "loading",
        )
        self.sets = {name: _Set() for name in names}
        self.steps: Dict[int, Interval] = {}
        for event in events:
            if event.kind == "user_annotation":
                self._annotation(event)
            elif event.kind == "kernel":
                self._add("collective_kernel" if _COLLECTIVE_KERNEL.search(event.name) else "kernel", event)
            elif event.kind in ("gpu_memcpy", "gpu_memset"):
                self._add("copy", event)
            elif event.kind == "cpu_op":
                self._operator(event)

    def _add(self, name: str, event: Event) -> None:
        self.sets[name].add(event)

    def _annotation(self, event: Event) -> None:
        step = _STEP.match(event.name)
        if step is not None:
            if len(self.steps) >= MOST_STEPS:
                raise TraceError("it has more than %d steps" % MOST_STEPS)
            self.steps[int(step[1])] = (event.begin_us, event.end_us)
        elif event.name.startswith("enumerate(DataLoader)"):
            self._add("loading", event)
        elif event.name.startswith("Optimizer.step#"):
            self._add("optimizer", event)
        elif _COLLECTIVE_CALL.match(event.name):
            self._add("collective_call", event)

    def _operator(self, event: Event) -> None:
        if event.name.startswith("autograd::engine::"):
            self._add("backward", event)
        elif _COLLECTIVE_CALL.match(event.name):
            self._add("collective_call", event)
        elif not event.name.startswith(_HOLDERS):
            self._add("operator", event)


def summarize(events: Iterable[Event]) -> Dict[str, Any]:
    """`device` (gpu or cpu) and `steps`: of each number, `step_us`, `collectives_us` and `parts_us`; TraceError."""
    gathered = _Gathered(events)
    if not gathered.steps:
        raise TraceError("it marks no steps (ProfilerStep#N)")
    on_gpu = bool(gathered.sets["kernel"] or gathered.sets["collective_kernel"])
    joined = {name: intervals.joined() for name, intervals in gathered.sets.items()}
    parts = _gpu_parts(joined) if on_gpu else _cpu_parts(joined)
    collectives = union([*joined["collective_kernel"], *joined["collective_call"]])
    steps = [
        _step_row(number, window, parts, collectives)
        for number, window in sorted(gathered.steps.items())
        if window[1] > window[0]
    ]
    return {"device": "gpu" if on_gpu else "cpu", "steps": steps}


def _gpu_parts(sets: Dict[str, Intervals]) -> Dict[str, Intervals]:
    collectives = union([*sets["collective_kernel"], *sets["collective_call"]])
    return _parted(
        [
            ("compute", sets["kernel"]),
            ("copy", sets["copy"]),
            ("communication", collectives),
            ("loading", sets["loading"]),
        ]
    )


def _cpu_parts(sets: Dict[str, Intervals]) -> Dict[str, Intervals]:
    operators = sets["operator"]
    return _parted(
        [
            ("loading", sets["loading"]),
            ("optimizer", common(sets["optimizer"], operators)),
            ("backward", common(sets["backward"], operators)),
            ("forward", operators),
            ("communication", sets["collective_call"]),
        ]
    )


def _parted(layers: Sequence[Any]) -> Dict[str, Intervals]:
    """Each moment goes to the first layer that has it."""
    taken: Intervals = []
    parts: Dict[str, Intervals] = {}
    for name, intervals in layers:
        parts[name] = without(intervals, taken)
        taken = union([*taken, *intervals])
    return parts


def _step_row(number: int, window: Interval, parts: Dict[str, Intervals], collectives: Intervals) -> Dict[str, Any]:
    whole = window[1] - window[0]
    parts_us = {name: round(length(within(intervals, *window)), 1) for name, intervals in parts.items()}
    parts_us["idle"] = round(max(0.0, whole - sum(parts_us.values())), 1)
    return {
        "number": number,
        "step_us": round(whole, 1),
        "collectives_us": round(length(within(collectives, *window)), 1),
        "parts_us": parts_us,
    }
