"""DeepSpeed's ZeRO, real, on two ranks over gloo, against one process: losses, resume, refusals."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv
from tests.training_venv import training_venv
from tests.workloads.test_transformer import run_two

FOLDER = next(iter(workloads.__path__))
_FP32 = ("zero1", "zero2", "zero3", "zero2 optimizer", "zero3 parameters")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the ranks found."""
    argv = [training_venv() / "bin/python", Path(__file__).with_name("zero_ranks.py"), tmp_path_factory.mktemp("zero")]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": FOLDER, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_losses_are_those_of_one_process(told: dict[str, Any]) -> None:
    for name in _FP32:
        assert told[name]["losses"] == pytest.approx(told["single"]["losses"], rel=1e-5), name
    assert told["zero1 sgd"]["losses"] == pytest.approx(told["single sgd"]["losses"], rel=1e-5)
    bf16 = told["zero3 bf16"]["losses"]
    assert bf16 == pytest.approx(told["single"]["losses"], rel=0.03) and bf16 != told["zero3"]["losses"]
    assert {told[name]["parameters"] for name in _FP32} == {told["single"]["parameters"]}


@pytest.mark.slow
def test_a_resumed_run_goes_on_exactly_and_not_from_another_stage(told: dict[str, Any]) -> None:
    for name in ("zero1", "zero3", "zero3 bf16", "zero3 parameters"):
        assert told[f"{name} resumed"] == told[name]["losses"][3:], name
    assert "is of ZeRO-3 on 2 ranks, this is ZeRO-2 on 2" in told["of another"]


@pytest.mark.slow
def test_offload_that_cannot_be_is_refused(told: dict[str, Any]) -> None:
    assert "by ZeRO-3 only, not by ZeRO-2" in told["parameters of zero2"]
    assert "goes with --parallel zero1" in told["no zero"]


@pytest.mark.slow
def test_without_deepspeed_it_is_refused_in_words() -> None:
    if list(Path(torch_venv()).glob("lib/python3*/site-packages/deepspeed")):
        pytest.skip("this environment has DeepSpeed")
    done = run_two("--parallel", "zero3", "--steps", 1)
    assert done.returncode != 0 and "ZeRO is DeepSpeed's, which this Python cannot import" in done.stderr
    assert "Traceback" not in done.stderr
