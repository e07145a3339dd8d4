"""A fault, its verdict, the cordon, the repair and the way back, on two lab hosts that are dressed in a recording."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.lab.recorded_faults import say_faults

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_machine")]
_NAME = f"ledger-{os.getpid()}"


@pytest.fixture
def nodectl(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """With a ledger of its own: cordons of another test's hosts are none of ours."""
    return Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))})


@pytest.fixture
def inventory(nodectl: Cli) -> Iterator[str]:
    with nodectl.lab(_NAME, 2, "--as", "dgx-a100") as lab:
        yield lab.inventory


def test_from_a_lost_gpu_to_the_way_back(nodectl: Cli, inventory: str) -> None:
    fleet = ("-i", inventory)
    # no torch there: it cannot tell of them, and knows their GPUs
    nodectl(*fleet, "accept", "--level", "quick", check=False, timeout=200)
    say_faults(inventory, "node02", ["gpu-lost"])
    done = nodectl(*fleet, "accept", "--level", "quick", "--cordon", check=False, timeout=200)
    assert done.returncode == 1 and "cordoned: node02: gpus: 7; lost: 0000:4E:00.0" in done.stderr

    life = json.loads(nodectl(*fleet, "--output", "json", "ledger", "show", "node02").stdout)["events"]
    assert [event["kind"] for event in life] == ["judged", "judged", "cordoned"]
    assert "gpu_lost" in {seen["finding"]["check"] for seen in life[1]["reasons"]}
    assert [len(event["gpus"]) for event in life[:2]] == [8, 7]

    plan = nodectl(*fleet, "accept", "--dry-run", check=False)
    assert plan.returncode == 0 and "left out: node02 is cordoned since" in plan.stderr
    looked = nodectl(*fleet, "health", check=False)
    assert "in the ledger: node02 is cordoned since" in looked.stderr
    say_faults(inventory, "node02", [])
    (kept,) = Path(nodectl.env["XDG_STATE_HOME"], "nodectl", "evidence").glob("node02-*/*")
    assert "device handle" in "".join(path.read_text() for path in kept.glob("node02/nvidia-smi*"))
    early = nodectl(*fleet, "ledger", "return", "node02", check=False)
    assert early.returncode == 1 and "no acceptance of it since" in early.stderr
    again = nodectl(*fleet, "-l", "node02", "accept", "--level", "quick", "--include-cordoned", timeout=200)
    assert "taken in all the same: node02 is cordoned since" in again.stderr
    nodectl(*fleet, "ledger", "return", "node02")
    assert "left out" not in nodectl(*fleet, "accept", "--dry-run").stderr.split("the hardware")[0]
