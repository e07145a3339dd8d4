"""Profiles some steps of a rank, with its script unchanged.

sitecustomize loads this if the job is launched with --trace. It counts the steps of torch's optimizer and profiles the
steps after the first ones. `torch` writes `traces/RANK.pt.trace.json.gz`; for `nsys` it opens and closes the window by
CUDA's profiler API. `traces/RANK.summary.json` has the shares of a step, or the problem. The script sees neither.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import time
from statistics import median
from typing import Any, Callable, Dict, Iterable, List, Tuple

_SKIP, _STEPS, _LONGEST_S = 10, 5, 120.0
_FREE_BYTES = 2 << 30
_HOOKED = "torch.optim.optimizer"
_UNWRITTEN = "it has not completed the steps %d to %d of its optimizer" % (_SKIP + 2, _SKIP + 1 + _STEPS)
_NO_STEP = "it took no step of a torch optimizer (a compiled step cannot be counted)"

# kernels of NCCL, RCCL, NVSHMEM, MSCCL, and of torch's symmetric memory
_COLLECTIVE_KERNEL = re.compile(r"(?i)nccl|rccl|msccl|nvshmem|multimem_|(one|two)_shot_all_reduce")
_COLLECTIVE_CALL = re.compile(r"(gloo|mpi|ucc):")
_COPY = re.compile(r"(?i)mem(cpy|set)\b")
# they only hold other operators, or wait for a collective
_HOLDERS = ("autograd::engine::", "c10d::", "_c10d_functional::", "c10d_functional::", "torch.distributed.")
# of a torch that does not mark them as annotations
_ANNOTATIONS = ("ProfilerStep", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel.", "nccl:")

_torch: Any = None
_recorder: Any = None


def install(tool: str) -> None:
    """Profile this rank by `torch` or `nsys` as soon as torch is imported."""
    sys.meta_path.insert(0, _AfterImport(_Recorder(tool).attach))


class _AfterImport:
    """Finds torch's module of optimizers as Python would, and calls back when it has run; then it is removed."""

    def __init__(self, attach: Callable[[Any], None]) -> None:
        self.attach = attach

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _HOOKED:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = PathFinder.find_spec(name, path, target)
        run = getattr(spec.loader, "exec_module", None) if spec is not None else None
        if run is not None:

            def exec_module(module: Any) -> None:
                run(module)
                self.attach(module)

            spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        return spec


def _after_step(optimizer: Any, *_: Any) -> None:
    ask = getattr(getattr(_torch, "compiler", None), "is_compiling", None)
    if ask is None or not ask():  # Dynamo, which compiles a step, must find nothing to do here
        _recorder.after_step(optimizer)


class _Recorder:
    """Counts the steps of the first optimizer, profiles the window, and writes the trace and the summary."""

    def __init__(self, tool: str) -> None:
        self.tool, self.pid = tool, os.getpid()
        self.attempt = int(os.environ.get("NODECTL_ATTEMPT", "1"))
        folder = os.path.join(os.environ["NODECTL_JOB_DIR"], "traces")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.rank = int(os.environ["RANK"])
        self.place = os.path.join(folder, str(self.rank))
        self.count, self.optimizer, self.began_s = 0, 0, 0.0
        self.window: Any = None
        self.end(_UNWRITTEN)  # replaced by all that follows
        self.done = False
        atexit.register(self._guarded, self._leave)

    def attach(self, module: Any) -> None:
        """Have every optimizer's step counted."""
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            self.end("this torch has no hook for the steps of optimizers (2.0 and later have it)")
            return
        global _torch, _recorder
        _torch, _recorder = sys.modules["torch"], self
        register(_after_step)

    def after_step(self, optimizer: Any) -> None:
        """Count a step of the first optimizer."""
        self.optimizer = self.optimizer or id(optimizer)
        if self.optimizer == id(optimizer):
            self._guarded(self._stepped)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Let an error end the trace, and never the script."""
        if self.done or os.getpid() != self.pid:
            return
        try:
            act()
        except Exception as error:
            self.end("%s: %s" % (type(error).__name__, error))

    def end(self, problem: str, **figures: float) -> None:
        """Write the summary, and count no more steps."""
        self.done = True
        row = {"rank": self.rank, "attempt": self.attempt, "problem": problem[:500], **figures}
        temporary = "%s.summary.%d" % (self.place, self.pid)
        with contextlib.suppress(OSError):  # a full disk
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(row, file)
            os.replace(temporary, self.place + ".summary.json")

    def _stepped(self) -> None:
        self.count += 1
        if self.count == _SKIP:
            self.began_s = time.monotonic()
            self._open()
        elif self.count > _SKIP:
            if self.window is not None:
                self.window.step()
            if self.count > _SKIP + _STEPS or time.monotonic() - self.began_s > _LONGEST_S:
                self._close()

    def _open(self) -> None:
        on_gpu = _torch.cuda.is_available()
        if self.tool == "nsys":
            if not on_gpu:
                raise RuntimeError("nsys profiles the use of a GPU, and this rank has none")
            _torch.cuda.profiler.start()
            return
        from torch.profiler import ProfilerActivity, profile, schedule

        # the first step warms the profiler up
        self.window = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])],
            schedule=schedule(wait=0, warmup=1, active=_STEPS, repeat=1),
            on_trace_ready=self._write,
        )
        self.window.start()

    def _close(self) -> None:
        if self.window is not None:
            self.window.stop()
            return
        _torch.cuda.synchronize()
        _torch.cuda.profiler.stop()
        self.end("")

    def _write(self, window: Any) -> None:
        figures, problem = summarize(window.events(), self.count - _SKIP - 1), ""
        disk = os.statvfs(os.path.dirname(self.place))
        if disk.f_bavail * disk.f_frsize < _FREE_BYTES:
            problem = "no trace file: less than %d GiB are free for it" % (_FREE_BYTES >> 30)
        else:
            window.export_chrome_trace(self.place + ".pt.trace.json.gz")
        self.end(problem, **figures)

    def _leave(self) -> None:
        """Write the steps that were recorded: the script has ended before its window was over."""
        if not self.count:
            self.end(_NO_STEP)
        elif self.count <= _SKIP + 1:
            return
        elif _torch.cuda.is_available() and hasattr(sys, "last_value"):
            self.end("it failed within the window, and a CUDA context that may have failed is not asked for more")
        else:
            self._close()


Span = Tuple[float, float]


def summarize(events: Iterable[Any], whole: int) -> Dict[str, float]:
    """Return the median step time and the percentages of the first `whole` steps, from torch.profiler's events.

    On a GPU its kernels count, on a CPU torch's operators. `idle` is the time in which neither they nor a collective
    run: `compute` + `communication` - `overlap` + `idle` is 100.
    """
    steps: List[Span] = []
    on_cpu: List[Span] = []
    on_gpu: List[Span] = []
    collectives: List[Span] = []
    for event in events:
        name, span = event.name, (event.time_range.start, event.time_range.end)
        marked = getattr(event, "is_user_annotation", False) or name.startswith(_ANNOTATIONS)
        if event.device_type.name != "CPU":
            if not marked and not _COPY.search(name):
                (collectives if _COLLECTIVE_KERNEL.search(name) else on_gpu).append(span)
        elif name.startswith("ProfilerStep"):
            steps.append(span)
        elif _COLLECTIVE_CALL.match(name):
            collectives.append(span)
        elif not marked and not name.startswith(_HOLDERS):
            on_cpu.append(span)
    steps = sorted(steps)[:whole]
    if not steps:
        raise ValueError("the profiler marked no step")
    computing, begin, end = on_gpu or on_cpu, steps[0][0], steps[-1][1]
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
