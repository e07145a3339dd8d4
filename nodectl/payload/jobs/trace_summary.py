"""Of a rank's trace: where the time of each step went. Pure arithmetic over the events' intervals.

A step's time is parted, each moment once. With a GPU: `compute` (its kernels), `copy` (memory copies beside no kernel),
`communication` (kernels of collectives beside neither), `loading` (the script waits for its DataLoader meanwhile), and
`idle`. Without: `loading`; `optimizer`, `backward` and `forward` (operators of torch, by what they run in);
`communication` (a collective runs and no operator), and `idle`: no operator runs, so Python, or other libraries.
`collectives` is all the time of collectives, also that beside computing.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Sequence

from .chrome_trace import Event, TraceError
from .intervals import Interval, Intervals, common, length, union, within, without

GPU_PARTS = ("compute", "copy", "communication", "loading", "idle")
CPU_PARTS = ("forward", "backward", "optimizer", "loading", "communication", "idle")
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
        _step(number, window, parts, collectives)
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
    found: Dict[str, Intervals] = {}
    for name, intervals in layers:
        found[name] = without(intervals, taken)
        taken = union([*taken, *intervals])
    return found


def _step(number: int, window: Interval, parts: Dict[str, Intervals], collectives: Intervals) -> Dict[str, Any]:
    whole = window[1] - window[0]
    parts_us = {name: round(length(within(intervals, *window)), 1) for name, intervals in parts.items()}
    parts_us["idle"] = round(max(0.0, whole - sum(parts_us.values())), 1)
    return {
        "number": number,
        "step_us": round(whole, 1),
        "collectives_us": round(length(within(collectives, *window)), 1),
        "parts_us": parts_us,
    }
