"""The nccl probe on live hosts with gloo: a node by itself, a slow host of pairs, and a rank that dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_machine")]

LAB = ("--name", "nccl-test")


@pytest.fixture(scope="module")
def fleet(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, tuple[str, ...]]]:
    """Three hosts at 1 Gbit/s, which find torch in the lab's share."""
    if Path(torch_venv()).parent.name != "lab-share":
        pytest.skip("the lab's share holds no environment with torch")
    home = tmp_path_factory.mktemp("nccl")
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(home)})
    inventory = cli("lab", "up", "-n", "3", "--rate", "1gbit", *LAB).stdout.strip()
    more = home / "venv.yml"
    more.write_text("all:\n  vars:\n    pytorch_venv: /srv/nodectl/venv\n")
    yield cli, ("-i", inventory, "-i", str(more))
    cli("lab", "down", *LAB)


def measured(fleet: tuple[Cli, tuple[str, ...]], *args: str) -> dict[str, Any]:
    cli, inventory = fleet
    wanted = ("--output", "json", "probe", "nccl", "--collectives", "all_reduce", *args)
    done = cli(*inventory, *wanted, check=False, timeout=400)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_interface_is_proven_and_a_slow_host_of_pairs_named(fleet: tuple[Cli, tuple[str, ...]]) -> None:
    cli, _ = fleet
    cli("lab", "fault", "slow-link", "node02", *LAB)
    try:
        found = measured(fleet, "--scope", "pairs", "--sizes", "4KiB,2MiB", "--repetitions", "3")
    finally:
        cli("lab", "heal", *LAB)
    assert [(each["kind"], each["hosts"], each["status"]) for each in found["findings"]] == [
        ("host", ["node02"], "failed")
    ]
    assert {tuple(each["conditions"]["interfaces_used"]) for each in found["measurements"]} == {("eth0",)}
    assert any(each["conditions"].get("again") for each in found["measurements"])


def test_a_rank_that_dies_makes_the_run_incomplete(fleet: tuple[Cli, tuple[str, ...]]) -> None:
    cli, inventory = fleet
    args = ("--output", "json", "probe", "nccl", "--collectives", "all_reduce", "--sizes", "4KiB,64MiB")
    argv = [sys.executable, "-m", "nodectl", *inventory, *args, "--repetitions", "50"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=cli.env, text=True) as probe:
        # a rank that has loaded torch has many sockets by the time it measures
        find = (
            "for p in $(pgrep -f 'local-rank 0'); do grep -q libtorch /proc/$p/maps && kill -9 $p && echo killed; done"
        )
        said = ""
        while "killed" not in said and probe.poll() is None:
            time.sleep(1)
            said = cli(*inventory, "-l", "node02", "exec", "--", "sh", "-c", find, check=False).stdout
        out, _ = probe.communicate(timeout=200)
    found = json.loads(out)
    assert probe.returncode == 1
    assert {("host", "node02"), ("incomplete", "node01")} <= {
        (each["kind"], each["host"]) for each in found["findings"]
    }
    assert any("ended by SIGKILL" in each["actual"] for each in found["findings"])
    assert not [each for each in found["measurements"] if each["conditions"]["complete"]]
