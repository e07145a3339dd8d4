"""The profiler in a rank, with a stand-in for torch: its window, its summary, and the shares of a step."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.payload.jobs import notes
from nodectl.payload.jobs.in_rank import nodectl_trace

# what the hook uses of torch, and a script's optimizer; its profiler writes which steps it saw
TORCH = {
    "torch/__init__.py": """
import os
from . import optim
class compiler:
    @staticmethod
    def is_compiling():
        return False
class cuda:
    @staticmethod
    def is_available():
        return os.environ.get("GPU") == "1"
""",
    "torch/optim/__init__.py": "from . import optimizer",
    "torch/optim/optimizer.py": """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
""",
    "torch/profiler.py": """
import gzip, json
class ProfilerActivity:
    CPU, CUDA = "cpu", "cuda"
def schedule(wait, warmup, active, repeat):
    assert repeat == 1
    return wait, warmup, active
class profile:
    def __init__(self, activities, schedule, on_trace_ready):
        self.kinds, self.ready = activities, on_trace_ready
        self.idle, self.last = sum(schedule[:2]), sum(schedule)
    def start(self):
        self.number = 0
    def step(self):
        self.number += 1
        if self.number == self.last:
            self.ready(self)
    def stop(self):
        assert self.number == self.last
    def events(self):
        return [Event("ProfilerStep*", 1000 * step, 1000 * step + 1000) for step in range(self.idle, self.number)]
    def export_chrome_trace(self, path):
        with gzip.open(path, "wt") as file:
            json.dump({"kinds": self.kinds, "steps": self.number}, file)
class Event:
    device_type = type("DeviceType", (), {"name": "CPU"})
    def __init__(self, name, start, end):
        self.name, self.time_range = name, type("Range", (), {"start": start, "end": end})
""",
}
LOOP = """
import os, sys, torch
assert "NODECTL_TRACE" not in os.environ and not any("nodectl" in str(finder) for finder in sys.meta_path)
one = torch.optim.optimizer.Optimizer()
for _ in range({steps}):
    one.step()
"""


def run(folder: Path, script: str, **variables: str) -> dict[str, Any]:
    """The summary that the rank left, and `trace`, what its profiler saw."""
    for place, text in TORCH.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    (folder / "train.py").write_text(script)
    own = {
        "PYTHONPATH": f"{notes.hook_folder()}:{folder}",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "NODECTL_JOB_DIR": str(folder),
    }
    env = {"PATH": os.environ["PATH"], **own, "NODECTL_TRACE": "1", **variables}
    done = subprocess.run(
        [sys.executable, str(folder / "train.py")], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    note: dict[str, Any] = json.loads((folder / "traces" / "3.summary.json").read_text())
    trace = folder / "traces" / "3.pt.trace.json.gz"
    note["trace"] = json.loads(gzip.decompress(trace.read_bytes())) if trace.exists() else None
    trace.unlink(missing_ok=True)
    assert [path.name for path in (folder / "traces").iterdir()] == ["3.summary.json"], done.stderr
    return {**note, "status": done.returncode, "out": done.stdout, "err": done.stderr}


def test_a_script_that_ends_early_has_no_trace(tmp_path: Path) -> None:
    why = "it has not taken 16 steps of a torch optimizer that is not compiled"
    for steps in (15, 2, 0):
        early = run(tmp_path, LOOP.format(steps=steps))
        assert (early["problem"], early["trace"], early["steps"], early["status"]) == (why, None, 0, 0)
    killed = run(tmp_path, LOOP.format(steps=12) + "os.kill(os.getpid(), 9)")
    assert (killed["problem"], killed["status"]) == (why, -9)


def test_what_goes_wrong_is_noted_and_not_the_scripts_concern(tmp_path: Path) -> None:
    run(tmp_path, "pass")
    fails = "def profile(**_): raise RuntimeError('Profiler is already enabled on this thread')\nschedule = dict\n"
    profiler = tmp_path / "torch" / "profiler.py"
    script = f"open({str(profiler)!r}, 'a').write({fails!r})\n" + LOOP.format(steps=20) + "print('whole')"
    told = run(tmp_path, script)
    assert told["problem"] == "RuntimeError: Profiler is already enabled on this thread"
    assert (told["status"], told["out"], told["err"], told["trace"]) == (0, "whole\n", "", None)


def event(name: str, start: float, end: float, device: str = "CPU", *, marked: bool = False) -> SimpleNamespace:
    times = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(
        name=name, time_range=times, device_type=SimpleNamespace(name=device), is_user_annotation=marked
    )


STEPS = [event("ProfilerStep*", 0, 1000, marked=True), event("ProfilerStep*", 1000, 2000, marked=True)]
# in 2 ms: 0.5 ms of computing, 0.6 ms of a collective, 0.1 ms of both
GPU = [
    event("ProfilerStep#1", 0, 1000, "CUDA", marked=True),
    event("nccl:all_reduce", 0, 2000, "CUDA", marked=True),
    event("void gemm<float, {lambda()#1}>(int)", 0, 500, "CUDA"),
    event("Memcpy HtoD (Pinned -> Device)", 1200, 1900, "CUDA"),
    event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 400, 1000, "CUDA"),
    event("aten::mm", 0, 2000),
]
CPU = [
    event("aten::linear", 0, 400),
    event("aten::mm", 100, 500),
    event("autograd::engine::evaluate_function: MmBackward0", 0, 2000),
    event("mine", 0, 2000, marked=True),
    event("gloo:all_reduce", 400, 1000, marked=True),
]


@pytest.mark.parametrize("events", [GPU, CPU], ids=["gpu", "cpu"])
def test_shares_of_a_step_add_up(events: list[SimpleNamespace]) -> None:
    assert nodectl_trace.summarize([*STEPS, *events]) == {
        "steps": 2, "step_ms": 1.0, "compute_percent": 25.0, "communication_percent": 30.0, "overlap_percent": 5.0,
        "idle_percent": 50.0,
    }  # fmt: skip


def test_events_count_within_the_steps_only() -> None:
    told = nodectl_trace.summarize([*STEPS, event("aten::mm", -500, 100), event("gloo:broadcast", 1900, 9000)])
    assert (told["compute_percent"], told["communication_percent"], told["idle_percent"]) == (5.0, 5.0, 90.0)
    with pytest.raises(ValueError, match="no step"):
        nodectl_trace.summarize(CPU)
