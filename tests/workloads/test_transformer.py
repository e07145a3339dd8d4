"""The transformer program as nodes run it: a process of a Python that has torch, alone and as two ranks."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv

PROGRAM = Path(next(iter(workloads.__path__))) / "transformer.py"
TINY = ("--d-model", "32", "--layers", "2", "--heads", "4", "--seq", "8", "--batch", "8", "--samples", "64")


def run(*options: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """One process alone."""
    with tempfile.TemporaryDirectory() as scratch:
        return _finished([_start(options, scratch, env or {})])[0]


def run_two(*options: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Two ranks, started as torchrun starts them; what the first says comes last."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port(), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    with tempfile.TemporaryDirectory() as scratch:
        own = [{**place, "RANK": str(rank), "LOCAL_RANK": str(rank), **(env or {})} for rank in (1, 0)]
        second, first = _finished([_start(options, scratch, each) for each in own])
    said, failed = second.stdout + first.stdout, second.stderr + first.stderr
    return subprocess.CompletedProcess(first.args, first.returncode or second.returncode, said, failed)


def run_torchrun(*options: object) -> subprocess.CompletedProcess[str]:
    """Two ranks by torchrun, which imports torch a third time."""
    place = ["--master-addr", "127.0.0.1", "--master-port", _free_port(), "--local-addr", "127.0.0.1"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *place]
    with tempfile.TemporaryDirectory() as scratch:  # torchrun leaves its logs where temporary files go
        return _finished([_start(options, scratch, {}, launcher)])[0]


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _start(
    options: Sequence[object], scratch: str, env: Mapping[str, str], launcher: Sequence[str] = ()
) -> subprocess.Popen[str]:
    argv = [f"{torch_venv()}/bin/python", *launcher, str(PROGRAM), *TINY, "--device", "cpu", *map(str, options)]
    # more threads than free cores make OpenMP spin, and a step takes twenty times as long
    base = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "OMP_NUM_THREADS": "1", "TMPDIR": scratch}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env={**base, **env})


def _finished(processes: Sequence[subprocess.Popen[str]]) -> list[subprocess.CompletedProcess[str]]:
    """Their ends; what they say beside each other fits into their pipes."""
    try:
        said = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *each)
        for process, each in zip(processes, said, strict=True)
    ]


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def losses(done: subprocess.CompletedProcess[str]) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"step (\d+)/\d+ loss (\S+)", done.stdout)}


@pytest.fixture(scope="module")
def whole() -> subprocess.CompletedProcess[str]:
    """Two ranks, twelve steps without a break."""
    return run_torchrun("--steps", 12, "--log-every", 1)


@pytest.mark.slow
def test_the_loss_falls() -> None:
    done = run("--steps", 120, "--log-every", 20)
    told = summary(done)
    assert told["last_loss"] < 0.5 * told["first_loss"], done.stdout
    assert told["median_step_ms"] > 0 and told["samples_per_s"] > 0 and told["untimed_steps"] == 10
    assert (told["steps"], told["world_size"], told["backend"], told["precision"]) == (120, 1, "none", "fp32")
    assert [loss for _, loss in told["losses"]][-1] == told["last_loss"] and len(told["losses"]) == 7
    options = told["options"]
    assert options["optimizer"] == "adam" and options["compress"] == "none"


@pytest.mark.slow
def test_every_rank_says_where_it_runs(whole: subprocess.CompletedProcess[str]) -> None:
    told = summary(whole)
    host = socket.gethostname()
    for rank in range(2):
        assert re.search(rf"^rank {rank} on {host}: local rank {rank}, device cpu, backend gloo", whole.stdout, re.M)
    assert (told["hosts"], told["world_size"], told["params"]) == ([host], 2, told["params"])
    assert list(losses(whole)) == list(range(1, 13)) and told["steps"] == 12


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_resumed_run_goes_on_exactly(ranks: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    # 4 steps are an epoch here: 6 is in the middle of the second
    start, folder, batch = (run, run_two)[ranks - 1], tmp_path / "checkpoints", ("--batch", 16 // ranks)
    steps = (*batch, "--log-every", 1, "--steps")
    whole = start(*steps, 12) if ranks == 1 else request.getfixturevalue("whole")
    first = start(*steps, 6, "--checkpoint-dir", folder, "--checkpoint-every", 2)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000004.pt", "step-00000006.pt"]
    env = {"NODECTL_CHECKPOINT_DIR": str(folder)}
    second = start(*steps, 12, "--checkpoint-every", 5, env=env)
    assert {**losses(first), **losses(second)} == losses(whole)
    told = summary(second)
    assert told["resumed_from_step"] == 6 and min(losses(second)) == 7
    assert told["first_loss"] == summary(whole)["first_loss"] and told["last_loss"] == summary(whole)["last_loss"]
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010.pt", "step-00000012.pt"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with checkpoints after 2 and 4 steps, and the summary."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, summary(run("--steps", 4, "--checkpoint-every", 2, "--checkpoint-dir", folder))


@pytest.fixture
def folder(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of it to do harm to."""
    return Path(shutil.copytree(trained[0], tmp_path / "copy"))


@pytest.mark.slow
def test_a_finished_training_has_nothing_to_do(folder: Path, trained: tuple[Path, dict[str, Any]]) -> None:
    again = summary(run("--steps", 4, "--checkpoint-dir", folder))
    assert again["last_loss"] == trained[1]["last_loss"] and again["resumed_from_step"] == again["steps"] == 4
    assert again["median_step_ms"] is None


@pytest.mark.slow
def test_a_broken_checkpoint_gives_way_to_the_one_before(folder: Path) -> None:
    newest = folder / "step-00000004.pt"
    flipped = bytearray(newest.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    newest.write_bytes(flipped)
    done = run("--steps", 3, "--checkpoint-dir", folder)
    assert summary(done)["resumed_from_step"] == 2
    assert f"checkpoint {newest} is unusable" in done.stdout and "resuming from" in done.stdout
    # what was saved since must not be taken for the oldest and dropped
    assert (folder / "step-00000003.pt").exists()


@pytest.mark.slow
def test_no_resume_sets_older_checkpoints_aside(folder: Path) -> None:
    assert summary(run("--steps", 1, "--no-resume", "--checkpoint-dir", folder))["resumed_from_step"] == 0
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pt"))
    assert left == ["earlier/step-00000002.pt", "earlier/step-00000004.pt", "step-00000001.pt"]


@pytest.mark.slow
def test_another_model_is_refused(folder: Path) -> None:
    done = run("--steps", 6, "--layers", 3, "--checkpoint-dir", folder)
    assert done.returncode != 0 and "of another model" in done.stderr and "--no-resume" in done.stderr


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_ends_it_with_one_message_before_anything_is_computed() -> None:
    done = run("--steps", 2, "--checkpoint-dir", "/proc/nodectl")
    assert done.returncode == 1 and "epoch" not in done.stdout
    assert done.stderr.startswith("--checkpoint-dir /proc/nodectl on ") and "that this login can write" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_options_that_break_a_rule_end_it_as_options_that_cannot_be_read() -> None:
    """Status 2: a job does not begin them anew, and its cause is the rule itself."""
    done = run("--compress", "bf16")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("transformer: error: --compress bf16 is for gradients that ranks send each other")


PARSED = """
import contextlib, io, json, sys
from options import parse
from transformer import Transformer
told = []
for argv in json.loads(sys.argv[1]):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            told.append(str(parse(Transformer(), argv).checkpoint_dir))
    except SystemExit as error:
        told.append(f"{error.code} {said.getvalue()}")
print(json.dumps(told))
"""


def parsed(*options: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The checkpoint folder of each command line, or the exit status and the words of its refusal."""
    told = subprocess.run(
        [sys.executable, "-c", PARSED, json.dumps(options)],
        cwd=PROGRAM.parent,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: list[str] = json.loads(told.stdout)
    return answer


def test_wrong_options_are_refused_and_the_checkpoint_folder_of_a_job_is_the_default() -> None:
    refused = {
        ("--heads", "5"): "cannot be shared",
        ("--batch", "0"): "whole number from 1",
        ("--seed", "4294967296"): "to 4294967295",
        ("--steps", "-1"): "whole number from 0",
        ("--lr", "nan"): "is not a finite number from 0",
        ("--dropout", "1"): "leaves nothing",
        ("--preset", "article-9"): "invalid choice",
        ("--layer", "8"): "unrecognized",
    }
    *folders, last = parsed(*refused, (), ("--checkpoint-dir", "/d"), env={"NODECTL_CHECKPOINT_DIR": "/c"})
    assert (folders.pop(), last) == ("/c", "/d")
    for said, message in zip(folders, refused.values(), strict=True):
        assert said.startswith("2 ") and message in said, said
    assert parsed((), env={"NODECTL_CHECKPOINT_DIR": ""}) == ["None"]
