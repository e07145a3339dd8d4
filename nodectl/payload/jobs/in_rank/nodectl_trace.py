"""Profiles some steps of a rank, with its script unchanged.

sitecustomize loads this if the job is launched with `--trace torch`. Each step of torch's optimizer is a step of
torch.profiler, whose own schedule skips the first ones. The rank writes `traces/RANK.pt.trace.json.gz`, and
`traces/RANK.summary.json` with the shares of a step or the problem.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from statistics import median
from typing import Any, Dict, Iterable, List, Tuple

_SKIP, _STEPS = 10, 5
_UNWRITTEN = "it has not taken %d steps of a torch optimizer that is not compiled" % (_SKIP + 1 + _STEPS)

# kernels of NCCL, RCCL, NVSHMEM, MSCCL, and of torch's symmetric memory
_COLLECTIVE_KERNEL = re.compile(r"(?i)nccl|rccl|msccl|nvshmem|multimem_|(one|two)_shot_all_reduce")
_COLLECTIVE_CALL = re.compile(r"(gloo|mpi|ucc):")
# copies, and annotations of a torch that does not mark them
_NO_KERNEL = re.compile(r"(?i)mem(cpy|set)\b|(ProfilerStep|Optimizer\.|enumerate\(|DistributedDataParallel\.|nccl:)")

_torch: Any = None


def install() -> None:
    """Profile this rank; torch is imported before its script."""
    global _torch
    recorder = _Recorder()
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _torch = torch
    register_optimizer_step_post_hook(recorder.after_step)


class _Recorder:
    def __init__(self) -> None:
        self.place = os.path.join(os.environ["NODECTL_JOB_DIR"], "traces", os.environ["RANK"])
        os.makedirs(os.path.dirname(self.place), exist_ok=True)
        self.optimizer, self.done = 0, False
        self.window: Any = None
        self._save(_UNWRITTEN)

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """Count a step of the first optimizer; an error ends the trace, and never the script."""
        if _torch.compiler.is_compiling():  # Dynamo, which compiles a step, must find nothing to do here
            return
        self.optimizer = self.optimizer or id(optimizer)
        if self.done or self.optimizer != id(optimizer):
            return
        try:
            if self.window is None:
                self._open()
            else:
                self.window.step()
            if self.done:
                self.window.stop()
        except Exception as error:
            self.done = True
            self._save("%s: %s" % (type(error).__name__, error))

    def _open(self) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        on_gpu = [ProfilerActivity.CUDA] if _torch.cuda.is_available() else []
        self.window = profile(
            activities=[ProfilerActivity.CPU, *on_gpu],
            schedule=schedule(wait=_SKIP - 1, warmup=1, active=_STEPS, repeat=1),
            on_trace_ready=self._write,
        )
        self.window.start()

    def _write(self, window: Any) -> None:
        self.done = True
        figures = summarize(window.events())
        window.export_chrome_trace(self.place + ".pt.trace.json.gz")
        self._save("", **figures)

    def _save(self, problem: str, *, steps: int = 0, **figures: float) -> None:
        row = {"rank": int(os.environ["RANK"]), "problem": problem[:500], "steps": steps, **figures}
        with contextlib.suppress(OSError), open(self.place + ".summary.json", "w", encoding="utf-8") as file:
            json.dump(row, file)


Span = Tuple[float, float]


def summarize(events: Iterable[Any]) -> Dict[str, Any]:
    """Return the median step time and the percentages of the steps, from torch.profiler's events.

    On a GPU its kernels count, on a CPU torch's operators. `idle` is the time in which neither they nor a collective
    run: `compute` + `communication` - `overlap` + `idle` is 100.
    """
    steps: List[Span] = []
    on_cpu: List[Span] = []
    on_gpu: List[Span] = []
    collectives: List[Span] = []
    for event in events:
        name, span = event.name, (event.time_range.start, event.time_range.end)
        if event.device_type.name != "CPU":
            if not getattr(event, "is_user_annotation", False) and not _NO_KERNEL.match(name):
                (collectives if _COLLECTIVE_KERNEL.search(name) else on_gpu).append(span)
        elif name.startswith("ProfilerStep"):
            steps.append(span)
        elif _COLLECTIVE_CALL.match(name):
            collectives.append(span)
        elif name.startswith("aten::"):
            on_cpu.append(span)
    if not steps:
        raise ValueError("the profiler marked no step")
    computing, begin, end = on_gpu or on_cpu, min(steps)[0], max(steps)[1]
    compute_us, communication_us, busy_us = (
        _covered(spans, begin, end) for spans in (computing, collectives, computing + collectives)
    )

    def percent(part_us: float) -> float:
        return round(100 * part_us / (end - begin), 1)

    return {
        "steps": len(steps),
        "step_ms": round(median(last - first for first, last in steps) / 1000, 3),
        "compute_percent": percent(compute_us),
        "communication_percent": percent(communication_us),
        "overlap_percent": percent(compute_us + communication_us - busy_us),
        "idle_percent": percent(end - begin - busy_us),
    }


def _covered(spans: List[Span], begin: float, end: float) -> float:
    """Return how much of the time between two moments the spans cover together."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + last - first, last
    return total
