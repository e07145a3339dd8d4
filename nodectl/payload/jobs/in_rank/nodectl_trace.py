"""Profiles a rank from inside, its script unchanged: after some optimizer steps, a window of steps.

sitecustomize loads this where the job is launched with --trace. `torch` writes `traces/RANK.json.gz` (a Chrome trace);
of `nsys` the window alone is opened and closed, by CUDA's profiler API. What is wrong with that is said in
`traces/RANK.note.json`, and never to the script. A script that ends by os._exit within its window leaves no trace.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Optional

_FREE_BYTES = 2 << 30
_MOST_BYTES = 2 << 30
_KILLED = "the rank was killed, or ended itself, before its trace was written"
_NO_STEP = "it took no step of a torch optimizer (one that is compiled cannot be counted)"
_STRANGE_STEPS = 2
_HOOKED = "torch.optim.optimizer"


_torch: Any = None
_recorder: Any = None
_waiting: List[Callable[[Any], None]] = []


def after_import(attach: Callable[[Any], None]) -> None:
    """Have `attach` called with torch's module of optimizers as soon as that is imported."""
    if not _waiting:
        sys.meta_path.insert(0, _AfterImport())
    _waiting.append(attach)


class _AfterImport:
    """Finds the module as Python would, and calls back when it has run; then it is off the list of finders."""

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
                for attach in _waiting:
                    attach(module)

            spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        return spec


def is_compiling(torch: Any) -> bool:
    """Tell whether Dynamo traces a step that is compiled itself, and must find nothing to do (torch 2.3 and later)."""
    ask = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return ask is not None and bool(ask())


def _after_step(optimizer: Any, *_: Any) -> None:
    if not is_compiling(_torch):
        _recorder.after_step(optimizer)


def install(ask: Dict[str, Any]) -> None:
    """Count optimizer steps as soon as torch is imported; `ask` has tool, skip, steps and longest_s."""
    after_import(_Recorder(ask).attach)


class _Recorder:
    """Counts steps of one optimizer, profiles its window, writes the trace and the note."""

    def __init__(self, ask: Dict[str, Any]) -> None:
        self.ask, self.pid = ask, os.getpid()
        folder = os.path.join(os.environ["NODECTL_JOB_DIR"], "traces")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.place = os.path.join(folder, os.environ["RANK"])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.place + ".json.gz")  # of an attempt before this one
        self.count = 0
        self.optimizer, self.strange = 0, 0
        self.window: Any = None
        self.began_s = 0.0
        self.done = False
        self.facts: Dict[str, Any] = {
            "rank": int(os.environ["RANK"]),
            "local_rank": int(os.environ["LOCAL_RANK"]),
            "attempt": int(os.environ.get("NODECTL_ATTEMPT", "1")),
            "tool": ask["tool"],
        }
        self.note(_KILLED)
        import atexit

        atexit.register(self.at_exit)

    def note(self, problem: str, **facts: Any) -> None:
        """Write what a look at the job's folder is to know of this rank's trace."""
        document = {**self.facts, "optimizer_steps": self.count, "problem": problem, **facts}
        temporary = "%s.note.%d" % (self.place, self.pid)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(document, file)
        os.replace(temporary, self.place + ".note.json")

    def attach(self, module: Any) -> None:
        """Have every optimizer's step counted."""
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            self.end("this torch has no hook for the steps of optimizers (2.0 and later have it)")
        else:
            global _torch, _recorder
            _torch, _recorder = sys.modules["torch"], self
            register(_after_step)

    def after_step(self, optimizer: Any) -> None:
        """Count a step of any optimizer; whatever goes wrong here is no concern of the script's."""
        if self.done or os.getpid() != self.pid:
            return
        try:
            if self._is_ours(id(optimizer)):
                self._stepped()
        except Exception as error:
            self.end("%s: %s" % (type(error).__name__, error))

    def _is_ours(self, optimizer: int) -> bool:
        """Count steps of one optimizer; of another where that one no longer moves."""
        if self.optimizer in (0, optimizer):
            self.optimizer, self.strange = optimizer, 0
            return True
        self.strange += 1
        if self.strange <= _STRANGE_STEPS or self.window is not None:
            return False
        self.optimizer, self.strange = optimizer, 0
        return True

    def _stepped(self) -> None:
        self.count += 1
        if self.window is None:
            if self.count >= self.ask["skip"]:
                self._open()
            return
        self.window.step()
        if not self.done and time.monotonic() - self.began_s > self.ask["longest_s"]:
            self.window.stop()

    def _open(self) -> None:
        self.began_s = time.monotonic()
        kind = _Cuda if self.ask["tool"] == "nsys" else _Torch
        self.window = kind(self.ask["steps"], self.write)
        self.window.start()

    def write(self, export: Optional[Callable[[str], None]], steps: int) -> None:
        """Write the trace: the window is over, or the rank ends within it."""
        self.done = True
        if export is None:
            self.note("", steps=steps)
            return
        partial = self.place + ".partial"
        try:
            free = os.statvfs(os.path.dirname(self.place))
            if free.f_bavail * free.f_frsize < _FREE_BYTES:
                raise OSError("less than %d GiB are free for the trace" % (_FREE_BYTES >> 30))
            size = _export(export, partial, self.place + ".json.gz")
            self.note("", steps=steps, size_bytes=size)
        except Exception as error:
            self.end("the trace was not written: %s" % error)
        finally:
            for path in (partial, partial + ".json"):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def end(self, problem: str) -> None:
        """No trace will come of this rank."""
        self.done = True
        with contextlib.suppress(Exception):
            self.note(problem[:500])

    def at_exit(self) -> None:
        """Write what there is: the script has ended before its window was over."""
        if self.done or os.getpid() != self.pid:
            return
        try:
            if self.window is not None and self.window.on_gpu and hasattr(sys, "last_value"):
                self.end("it failed within the window, and a CUDA context that may have failed is not asked for more")
            elif self.window is not None:
                self.window.stop()
            if not self.done:
                taken = "it took %d optimizer steps, and the window begins after %d" % (
                    self.count,
                    self.ask["skip"] + 1,
                )
                self.end(taken if self.count else _NO_STEP)
        except Exception as error:
            self.end("%s: %s" % (type(error).__name__, error))


def _export(export: Callable[[str], None], partial: str, place: str) -> int:
    """Bytes of the trace as it lies there, packed."""
    text = partial + ".json"
    before = os.umask(0o077)
    try:
        export(text)
        if os.path.getsize(text) > _MOST_BYTES:
            raise OSError("it has more than %d GiB: profile fewer steps (--trace-steps)" % (_MOST_BYTES >> 30))
        with open(text, "rb") as source, gzip.open(partial, "wb", compresslevel=2) as file:
            shutil.copyfileobj(source, file, 1 << 20)
    finally:
        os.umask(before)
    os.replace(partial, place)
    return os.path.getsize(place)


class _Torch:
    """torch.profiler over a window; the step before it warms the profiler up and is thrown away."""

    def __init__(self, steps: int, write: Callable[[Optional[Callable[[str], None]], int], None]) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        self.on_gpu = bool(torch.cuda.is_available())
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]
        self._write = write
        self._steps = 0
        self._profile: Any = profile(
            activities=kinds,
            schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._ready,
        )
        self._most = steps

    def start(self) -> None:
        self._profile.start()

    def step(self) -> None:
        self._steps += 1
        self._profile.step()
        if self._steps > self._most:
            self._profile.stop()

    def stop(self) -> None:
        if self._steps:  # else it has only warmed up
            self._profile.stop()

    def _ready(self, profile: Any) -> None:
        self._write(profile.export_chrome_trace, min(self._steps - 1, self._most))


class _Cuda:
    """The window for `nsys profile --capture-range=cudaProfilerApi`, with each step as an NVTX range."""

    on_gpu = True

    def __init__(self, steps: int, write: Callable[[Optional[Callable[[str], None]], int], None]) -> None:
        import torch

        self._cuda: Any = torch.cuda
        if not torch.cuda.is_available():
            raise RuntimeError("nsys profiles the use of a GPU, and this rank has none")
        self._most, self._write = steps, write
        self._steps = 0

    def start(self) -> None:
        self._cuda.profiler.start()
        self._mark()

    def _mark(self) -> None:
        self._cuda.nvtx.range_push("ProfilerStep#%d" % (self._steps + 1))

    def step(self) -> None:
        self._cuda.nvtx.range_pop()
        self._steps += 1
        if self._steps >= self._most:
            self._close()
        else:
            self._mark()

    def stop(self) -> None:
        self._cuda.nvtx.range_pop()
        self._close()

    def _close(self) -> None:
        self._cuda.synchronize()
        self._cuda.profiler.stop()
        self._write(None, self._steps)
