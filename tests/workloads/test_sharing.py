"""A model shared out over ranks (FSDP2, tensor and pipeline parallelism) learns what one device alone learns."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv

# two ranks and four take a minute of two cores together
pytestmark = pytest.mark.slow

_RANKS = Path(__file__).with_name("sharing_ranks.py")
# of losses near 5, after four steps in which AdamW makes much of small differences
TOLERANCE = 1e-4
# bf16 has 8 bits, and FSDP2 rounds other numbers to them than autocast does
TOLERANCE_BF16 = 2e-2
TWO = {
    "fsdp2": ["--parallel=fsdp2", "--batch=2", "--accumulation=2"],
    "offload": ["--parallel=fsdp2", "--batch=4", "--offload=parameters"],
    "tensor": ["--tensor=2", "--batch=4", "--accumulation=2"],
    "1f1b": ["--stages=2", "--batch=2", "--accumulation=4", "--recompute=full"],
    "gpipe": ["--stages=2", "--batch=8"],
    "stages, fsdp2, bf16": ["--stages=2", "--parallel=fsdp2", "--batch=4", "--accumulation=2", "--precision=bf16"],
}


def run(world_size: int, ways: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": next(iter(workloads.__path__)),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [f"{torch_venv()}/bin/python", str(_RANKS), str(world_size), str(folder / "meeting"), json.dumps(ways)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(2, TWO, tmp_path_factory.mktemp("two"))


def is_same_training(own: dict[str, Any]) -> None:
    tolerance = TOLERANCE if own["precision"] == "fp32" else TOLERANCE_BF16
    assert own["losses"] == pytest.approx(own["single"], abs=tolerance)
    assert own["params"][0] == own["params"][1]
    # from its checkpoint: to the bit in the same layout, and as it went on on one device
    assert own["resumed"] and own["losses"][2:] == pytest.approx(own["alone"], abs=tolerance)
    assert own["losses"][3] < own["losses"][0]


@pytest.mark.parametrize("way", TWO)
def test_two_ranks_learn_what_one_does(two: dict[str, Any], way: str) -> None:
    is_same_training(two[way])


def test_each_rank_has_its_part_alone(two: dict[str, Any]) -> None:
    # of 16 x 16: half of the rows, which are heads
    for way in ("fsdp2", "offload", "tensor"):
        assert two[way]["query"] == [8, 16] and two[way]["moments"] == [[8, 16]]
        assert two[way]["placements"] == ["S(0)"] or two[way]["placements"] == ["Shard(dim=0)"]
        assert two[way]["layers"] == 4
    assert two["fsdp2"]["data"] == [0, 2] and two["tensor"]["data"] == [0, 1]
    assert two["1f1b"]["layers"] == two["gpipe"]["layers"] == 2 and two["1f1b"]["query"] == [16, 16]


def test_an_overflow_of_one_rank_is_one_of_all(two: dict[str, Any]) -> None:
    assert two["scaled"]["weights"] == [[1.0, 1.0, 2.0**15], [0.0, 0.0, 2.0**15]]
