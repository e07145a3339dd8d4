"""benchmarks/gpu_truth.py as far as it goes without a GPU: products on processors, and what they lack."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.torch_venv import torch_venv

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu_truth.py"


def run(*args: str, **environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [f"{torch_venv()}/bin/python", "-B", str(PROGRAM), *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # threads that wait for each other on a busy machine measure only that
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
def test_what_the_device_lacks_is_left_out_and_the_rest_is_compared() -> None:
    _, lines = run("--device=cpu", "--rounds=1", "--seconds=0.02", "--precisions=fp32,fp8", "--only=gemm,hbm,nccl")
    document = json.loads(lines[-1])
    assert document["failed"] == {} and "nccl: a collective needs two GPUs" in lines
    assert set(document["ratios"]) == {"gemm_fp32"} and document["ratios"]["gemm_fp32"] > 0
    assert "gemm_fp8: a processor has no fp8" in lines
    assert any(line.startswith("| `gemm_fp32` |") for line in lines)


@pytest.mark.slow
def test_a_training_is_held_against_a_loop_written_by_hand() -> None:
    _, lines = run("--device=cpu", "--only=llm")
    document = json.loads(lines[-1])
    assert document["failed"] == {} and document["ratios"]["llm"] > 0
