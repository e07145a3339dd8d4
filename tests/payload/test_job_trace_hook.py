"""The profiler in a rank: when its window opens and closes, what is noted; with a stand-in for torch, so no figures."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nodectl.payload.jobs import notes

# what the hook uses of torch, and a script's optimizer; its profiler writes which steps it saw
TORCH = {
    "torch/__init__.py": """
import os
from . import optim
class cuda:
    profiler = nvtx = None
    @staticmethod
    def is_available():
        return os.environ.get("GPU") == "1"
    @staticmethod
    def synchronize():
        print("synchronize")
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
import json
class ProfilerActivity:
    CPU, CUDA = "cpu", "cuda"
def schedule(wait, warmup, active, repeat):
    assert (wait, warmup, repeat) == (0, 1, 1)
    return active
class profile:
    def __init__(self, activities, schedule, on_trace_ready):
        self.kinds, self.active, self.ready = activities, schedule, on_trace_ready
        self.number, self.told = None, False
    def start(self):
        self.number = 0
    def step(self):
        self.number += 1
        if self.number > self.active:
            self._tell()
    def stop(self):
        self._tell()
    def _tell(self):
        if not self.told:
            self.told = True
            self.ready(self)
    def export_chrome_trace(self, path):
        with open(path, "w") as file:
            json.dump({"kinds": self.kinds, "steps": self.number}, file)
""",
}
LOOP = """
import os, sys, torch
assert "NODECTL_TRACE" not in os.environ and not any("nodectl" in str(finder) for finder in sys.meta_path)
one = torch.optim.optimizer.Optimizer()
for _ in range({steps}):
    one.step()
"""


def run(folder: Path, script: str, ask: dict[str, Any] | None = None, **variables: str) -> dict[str, Any]:
    """The note that the rank left, and `trace`, what its profiler saw."""
    for place, text in TORCH.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    (folder / "train.py").write_text(script)
    asked = {"tool": "torch", "skip": 3, "steps": 2, "longest_s": 100, **(ask or {})}
    own = {
        "PYTHONPATH": f"{notes.hook_folder()}:{folder}",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "NODECTL_JOB_DIR": str(folder),
    }
    env = {"PATH": os.environ["PATH"], **own, "NODECTL_TRACE": json.dumps(asked), **variables}
    done = subprocess.run(
        [sys.executable, str(folder / "train.py")], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    note: dict[str, Any] = json.loads((folder / "traces" / "3.note.json").read_text())
    trace = folder / "traces" / "3.json.gz"
    note["trace"] = json.loads(gzip.decompress(trace.read_bytes())) if trace.exists() else None
    assert sorted(path.name for path in (folder / "traces").iterdir()) == [
        *(["3.json.gz"] if trace.exists() else []), "3.note.json",
    ]  # fmt: skip
    return {**note, "status": done.returncode, "out": done.stdout, "err": done.stderr}


def test_the_window_lies_behind_the_first_steps(tmp_path: Path) -> None:
    told = run(tmp_path, LOOP.format(steps=20))
    # opened after 3 steps, one to warm up, 2 recorded
    assert (told["problem"], told["steps"], told["optimizer_steps"]) == ("", 2, 6)
    assert told["trace"] == {"kinds": ["cpu"], "steps": 3}
    assert (told["rank"], told["local_rank"], told["attempt"], told["tool"], told["status"]) == (3, 1, 1, "torch", 0)
    assert told["size_bytes"] == (tmp_path / "traces" / "3.json.gz").stat().st_size
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "traces").iterdir()} == {0o600}
    assert run(tmp_path, LOOP.format(steps=20), GPU="1")["trace"]["kinds"] == ["cpu", "cuda"]


def test_a_script_that_ends_early_leaves_what_there_is_or_says_why(tmp_path: Path) -> None:
    within = run(tmp_path, LOOP.format(steps=5))
    assert (within["problem"], within["steps"], within["trace"]["steps"]) == ("", 1, 2)
    for steps, problem in {
        3: "it took 3 optimizer steps, and the window begins after 4",
        2: "it took 2 optimizer steps, and the window begins after 4",
        0: "it took no step of a torch optimizer (one that is compiled cannot be counted)",
    }.items():
        early = run(tmp_path, LOOP.format(steps=steps))
        assert (early["problem"], early["trace"], early["status"]) == (problem, None, 0)
    raises = run(tmp_path, LOOP.format(steps=5) + "raise ValueError('x')")
    assert (raises["problem"], raises["steps"], raises["status"]) == ("", 1, 1)
    on_gpu = run(tmp_path, LOOP.format(steps=5) + "raise ValueError('x')", GPU="1")
    assert (on_gpu["trace"], on_gpu["status"]) == (None, 1) and on_gpu["problem"].startswith("it failed within")
    killed = run(tmp_path, LOOP.format(steps=5) + "os.kill(os.getpid(), 9)")
    assert killed["problem"].startswith("the rank was killed") and killed["status"] == -9


def test_what_goes_wrong_is_noted_and_not_the_scripts_concern(tmp_path: Path) -> None:
    run(tmp_path, "pass")
    fails = "def profile(**_): raise RuntimeError('Profiler is already enabled on this thread')\nschedule = dict\n"
    profiler = tmp_path / "torch" / "profiler.py"
    script = f"open({str(profiler)!r}, 'a').write({fails!r})\n" + LOOP.format(steps=20) + "print('whole')"
    told = run(tmp_path, script)
    assert told["problem"] == "RuntimeError: Profiler is already enabled on this thread"
    assert (told["status"], told["out"], told["err"], told["trace"]) == (0, "whole\n", "", None)


def test_for_nsys_the_window_is_opened_by_cudas_profiler_api(tmp_path: Path) -> None:
    script = LOOP.format(steps=0) + (
        "class calls:\n"
        "    start = staticmethod(lambda: print('start'))\n"
        "    stop = staticmethod(lambda: print('stop'))\n"
        "    range_push = staticmethod(lambda name: print('push', name))\n"
        "    range_pop = staticmethod(lambda: print('pop'))\n"
        "torch.cuda.profiler = torch.cuda.nvtx = calls\n"
        "for number in range(8):\n    print(number)\n    one.step()\n"
    )
    told = run(tmp_path, script, {"tool": "nsys"}, GPU="1")
    assert (told["problem"], told["steps"], told["tool"], told["trace"]) == ("", 2, "nsys", None)
    assert told["out"].split("\n") == [
        *("0", "1", "2", "start", "push ProfilerStep#1", "3", "pop", "push ProfilerStep#2", "4", "pop"),
        *("synchronize", "stop", "5", "6", "7", ""),
    ]
    without = run(tmp_path, LOOP.format(steps=20), {"tool": "nsys"})
    assert without["problem"].endswith("nsys profiles the use of a GPU, and this rank has none")
