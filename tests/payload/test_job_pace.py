"""Who is slower than the others, by the blocks of steps that ranks note; and a rank's notes, with a stand-in torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import notes, pace, pulse
from nodectl.payload.jobs.pace import Exchange, Paces


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, *parts: str) -> str:
        return str(self.path.joinpath(*parts))


def blocks(*firsts: float, backward_s: float = 0.02, step_s: float = 0.4, steps: int = 32) -> list[dict[str, Any]]:
    """Blocks of 32 steps whose first collective is called after so long."""
    return [
        {"step": steps * place, "steps": steps, "step_s": step_s, "groups": {"0": [first, first + backward_s]}}
        for place, first in enumerate(firsts, start=1)
    ]


def judged(
    by_rank: Mapping[int, list[dict[str, Any]]], percent: float = pace.PERCENT
) -> tuple[int, int, int, int] | None:
    paces = Paces()
    paces.note({"rank": rank, "blocks": told} for rank, told in by_rank.items())
    lag = paces.straggler(percent)
    return None if lag is None else (lag.rank, round(lag.percent), lag.since, lag.steps)


CALM = blocks(0.1, 0.1, 0.1, 0.1)
SLOW = blocks(0.1, 0.136, 0.136, 0.136)
BEHIND = {"backward_s": 0.04}


@pytest.mark.parametrize(
    ("by_rank", "found"),
    [
        ({0: CALM, 1: CALM, 2: CALM}, None),
        ({0: CALM, 1: SLOW, 2: CALM}, (1, 30, 32, 96)),
        ({0: CALM, 1: SLOW}, (1, 30, 32, 96)),
        # rank 0 may write between two steps; its backward pass is its own
        ({0: SLOW, 1: CALM, 2: CALM}, None),
        ({0: blocks(0.1, 0.1, 0.1, backward_s=0.06), 1: CALM, 2: CALM}, (0, 100, 0, 96)),
        # it has passed, is not for long, or is small beside the step
        ({0: CALM, 1: blocks(0.136, 0.136, 0.136, 0.1), 2: CALM}, None),
        ({0: CALM, 1: blocks(0.1, 0.1, 0.136, 0.136), 2: CALM}, None),
        ({0: CALM, 1: blocks(0.1, 0.136, 0.136, 0.136, step_s=0.05), 2: CALM}, None),
        ({rank: blocks(*[value / 10] * 3, step_s=4.0) for rank, value in enumerate((1.0, 1.36, 1.0))}, None),
        # each has its turn
        ({0: CALM, 1: blocks(0.1, 0.2, 0.1, 0.2), 2: blocks(0.2, 0.1, 0.2, 0.1)}, None),
        # of NCCL's collectives the slow rank waits least
        ({0: blocks(*[-0.2] * 4, backward_s=0), 1: blocks(*[-0.1] * 4, backward_s=0)}, (1, 50, 0, 128)),
    ],
)
def test_the_straggler(by_rank: dict[int, list[dict[str, Any]]], found: tuple[int, int, int, int] | None) -> None:
    assert judged(by_rank) == found


def test_a_threshold_of_ones_own() -> None:
    assert judged({0: CALM, 1: SLOW, 2: CALM}, 35) is None


def test_only_steps_that_all_ranks_tell_are_compared_and_groups_apart() -> None:
    other = [{**block, "groups": {"1": [9.0, 9.0]}} for block in CALM]
    assert judged({0: CALM, 1: SLOW, 2: CALM[:2]}) is None
    assert judged({0: CALM, 1: CALM, 2: other, 3: other}) is None


def test_a_host_gives_way_with_the_first_checkpoint_after_its_rank_was_found_slow() -> None:
    exchange = Exchange(20.0, range(1, 2))
    exchange.rows = [{"rank": 1, "blocks": SLOW}]
    others = [{"rank": rank, "blocks": CALM} for rank in (0, 2)]
    assert (exchange.why(others, 5), exchange.why(others, 5)) == ("", "")
    assert "rank 1 is 30 % slower" in exchange.why(others, 6)
    another = Exchange(20.0, range(2, 3))
    another.rows = [{"rank": 2, "blocks": CALM}]
    told = [{"rank": 0, "blocks": CALM}, {"rank": 1, "blocks": SLOW}]
    assert (another.why(told, 5), another.why(told, 6)) == ("", "")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"attempt": 1}', '{"attempt": 1, "blocks": [{"step": "x"}]}', '{"attempt": 1, "blocks": 3}']
)
def test_what_a_script_has_written_there_is_no_pace(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/0.pace.json").write_text(text)
    assert pulse.paces(Folder(tmp_path), 1) == []  # type: ignore[arg-type]


TORCH = {
    "torch/__init__.py": "from . import optim",
    "torch/optim/__init__.py": "from . import optimizer",
    "torch/optim/optimizer.py": """
hooks = []
def register_optimizer_step_pre_hook(hook):
    hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
""",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": """
import json, time
kept = []
def call(name, group="0", **more):
    kept.append({"time_created_ns": time.time_ns(), "process_group": [group, "x"], "is_p2p": False,
                 "profiling_name": name, **more})
def _dump_fr_trace_json():
    return json.dumps({"entries": kept}).encode()
""",
}
SCRIPT = """
import time, torch.optim
from torch._C import _distributed_c10d as c10d
optimizer, other = torch.optim.optimizer.Optimizer(), torch.optim.optimizer.Optimizer()
for step in range(8):
    optimizer.step()
    other.step()
    time.sleep(0.02)
    c10d.call("gloo:all_reduce")
    c10d.call("nccl:all_reduce", "1", duration_ms=6.0)
    c10d.call("nccl:all_reduce", "1", duration_ms=4.0)
    c10d.call("nccl:all_reduce", "2", duration_ms=None)
    c10d.call("nccl:send", "1", is_p2p=True, duration_ms=9.0)
    time.sleep(0.01)
    c10d.call("gloo:all_reduce")
"""


def ran(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    for name, text in {**TORCH, "train.py": script}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    env = {**os.environ, "NODECTL_JOB_DIR": str(folder), "RANK": "3", "LOCAL_RANK": "1", "NODECTL_ATTEMPT": "2"}
    env["PYTHONPATH"] = notes.hook_folder()
    argv = [sys.executable, "train.py"]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_rank_notes_when_it_called_gloos_collectives_and_how_long_nccls_took(tmp_path: Path) -> None:
    done = ran(tmp_path, SCRIPT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (row,) = pulse.paces(Folder(tmp_path), 2)  # type: ignore[arg-type]
    assert pulse.paces(Folder(tmp_path), 1) == []  # type: ignore[arg-type]
    (block,) = row["blocks"]
    assert row["place"] == 1
    assert (row["rank"], block["step"], block["steps"], set(block["groups"])) == (3, 8, 7, {"0", "1"})
    first_s, last_s = block["groups"]["0"]
    assert 0.02 <= first_s < last_s and last_s - first_s >= 0.01 and block["step_s"] >= 0.03
    assert block["groups"]["1"] == [-0.01, -0.01]


def test_a_recorder_that_fails_ends_the_notes_and_not_the_rank(tmp_path: Path) -> None:
    broken = SCRIPT.replace("for step in", "c10d._dump_fr_trace_json = lambda: b'{'\nfor step in")
    done = ran(tmp_path, broken)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.glob("notes/*.pace.json"))
    assert json.loads((tmp_path / "notes/3.json").read_text())["pid"] > 0
