"""The profiler in a rank, with a stand-in for torch: its summary, and the shares of a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodectl.payload.jobs import notes
from nodectl.payload.jobs.in_rank import nodectl_trace

# what the hook uses of torch, but no profiler, and a script's optimizer
TORCH = {
    "torch/__init__.py": """
from . import optim
class compiler:
    @staticmethod
    def is_compiling():
        return False
class cuda:
    @staticmethod
    def is_available():
        return False
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
}
LOOP = """
import os, sys, torch
assert "NODECTL_TRACE" not in os.environ and not any("nodectl" in str(finder) for finder in sys.meta_path)
one = torch.optim.optimizer.Optimizer()
for _ in range({steps}):
    one.step()
"""


def run(folder: Path, script: str) -> tuple[str, int, str, str]:
    """The problem that the rank noted in its summary, its status, and what it printed."""
    for place, text in TORCH.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    (folder / "train.py").write_text(script)
    own = {"PYTHONPATH": f"{notes.hook_folder()}:{folder}", "RANK": "3", "LOCAL_RANK": "1"}
    env = {"PATH": os.environ["PATH"], **own, "NODECTL_JOB_DIR": str(folder), "NODECTL_TRACE": "1"}
    argv = [sys.executable, str(folder / "train.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert [path.name for path in (folder / "traces").iterdir()] == ["3.summary.json"], done.stderr
    note = json.loads((folder / "traces" / "3.summary.json").read_text())
    return note["problem"], done.returncode, done.stdout, done.stderr


def test_a_script_that_ends_early_has_no_trace(tmp_path: Path) -> None:
    why = "it has not taken 16 steps of a torch optimizer that is not compiled"
    assert run(tmp_path, LOOP.format(steps=0))[:2] == (why, 0)
    assert run(tmp_path, LOOP.format(steps=0) + "os.kill(os.getpid(), 9)")[:2] == (why, -9)


def test_what_goes_wrong_is_noted_and_not_the_scripts_concern(tmp_path: Path) -> None:
    told = run(tmp_path, LOOP.format(steps=20) + "print('whole')")
    assert told == ("ModuleNotFoundError: No module named 'torch.profiler'", 0, "whole\n", "")


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
