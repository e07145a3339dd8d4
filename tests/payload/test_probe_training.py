"""The training measurement's memory: refused before anything is allocated."""

import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from nodectl.payload.articles.training import check_memory
from tests.torch_venv import torch_venv

GIB = 2**30


@pytest.mark.parametrize(
    ("layers", "d_model", "free_bytes", "refused"),
    [
        (2, 288, 4 * GIB, False),
        # gradients of 3 GiB, with the weights and the optimizer's two 12
        (12, 2368, 25 * GIB, False),
        (12, 2368, 23 * GIB, True),
        (12, 10**6, None, False),
    ],
)
def test_a_rank_gets_half_of_what_is_free(layers: int, d_model: int, free_bytes: int | None, refused: bool) -> None:
    options = Namespace(layers=layers, d_model=d_model)
    if not refused:
        check_memory(options, free_bytes)
        return
    with pytest.raises(MemoryError, match=r"takes 12.0 GiB, and 23.0 GiB are free.*--gradient"):
        check_memory(options, free_bytes)


_STEP = """
import sys
import subprocess
from argparse import Namespace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import ranks, torch
from nodectl.payload.articles.training import Run
group = ranks.Ranks(0, 1, 0, torch.device("cpu"), "none", ("a",))
run = Run(Namespace(layers=1, d_model=16, heads=2, batch=2, seq=8, seed=0, world_size=1), group, torch)
print(run.step().item() > 0, len(run.checksum()) > 0)
"""


def test_a_rank_trains_the_shipped_transformer() -> None:
    root = Path(__file__).resolve().parents[2]
    argv = [f"{torch_venv()}/bin/python", "-c", _STEP, str(root / "nodectl" / "workloads")]
    done = subprocess.run(argv, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
    assert done.stdout == "True True\n", done.stderr
