"""benchmarks/gpu_truth.py as far as it goes without a GPU: products on processors, and what they lack."""

import json
import os
import subprocess
from pathlib import Path

from nodectl.common.resources import payload_dir
from tests.torch_venv import torch_venv

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu_truth.py"
FAKE = Path(__file__).parent / "fake_cuda"


def run(*args: str, **environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [f"{torch_venv()}/bin/python", "-B", str(PROGRAM), *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_what_the_device_lacks_is_left_out_and_the_rest_is_compared() -> None:
    _, lines = run("--device=cpu", "--rounds=1", "--seconds=0.02", "--precisions=fp32,fp8")
    document = json.loads(lines[-1])
    assert set(document["ratios"]) == {"gemm_fp32"} and document["ratios"]["gemm_fp32"] > 0
    assert "gemm_fp8: a processor has no fp8" in lines
    assert any(line.startswith("| `gemm_fp32` |") for line in lines)


BUSY = """
import argparse, sys
sys.path.insert(0, sys.argv[1])
import gpu_truth, torch
print(gpu_truth._sdc_busy(torch, torch.device("cpu"), argparse.Namespace(seconds=0.2)))
"""


def test_how_busy_sdc_keeps_a_gpu() -> None:
    """Of a GPU that is none: its rounds are a processor's, and so is the time of one."""
    done = subprocess.run(
        [f"{torch_venv()}/bin/python", "-B", "-c", BUSY, str(PROGRAM.parent)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(FAKE),
            "NODECTL_FAKE_GPUS": "1",
            # threads that wait for each other on a busy machine measure only that
            "OMP_NUM_THREADS": "1",
            "NODECTL_FAKE_PAYLOAD": str(payload_dir().parent),
        },
    )
    assert 0.02 < float(done.stdout) < 5


def test_without_a_gpu_nothing_is_measured() -> None:
    status, lines = run()
    assert (status, json.loads(lines[-1])["ratios"]) == (0, {})
