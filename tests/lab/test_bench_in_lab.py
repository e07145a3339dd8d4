"""`nodectl bench` on hosts of a lab: the real thing over SSH, and links that are as they were afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, LabUnderTest
from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

# what every lab host sees of the operator's share
_VENV = "/srv/nodectl/venv"
_NAME = f"bench-{os.getpid()}"


@pytest.fixture(scope="module")
def venv_inventory(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """An inventory that says where the hosts' torch lies, beside the lab's own."""
    share = Path(cli_env["XDG_CACHE_HOME"], "nodectl", "lab-share", "venv")
    if Path(torch_venv()) != share:
        pytest.skip(f"no torch that a lab's hosts see: {share} is filled by `make test`")
    path = tmp_path_factory.mktemp("inventory") / "venv.yml"
    path.write_text(f"all:\n  vars:\n    pytorch_venv: {_VENV}\n")
    return str(path)


@pytest.fixture(scope="module")
def lab2(nodectl: Cli) -> Iterator[LabUnderTest]:
    """Two hosts whose links may be given other rates; tests leave them at 500 Mbit/s."""
    with nodectl.lab(_NAME, 2, "--rate", "500mbit") as lab:
        yield lab


def rates_of(nodectl: Cli, lab: LabUnderTest) -> set[str]:
    """What the lab says, and what the hosts' own ends are shaped to."""
    said = json.loads(nodectl("lab", "status", "--name", _NAME, "--output", "json").stdout)["rate"]
    told = [lab.ssh(host, "tc class show dev eth0; tc qdisc show dev eth0") for host in lab.hosts]
    shaped = {each.partition(" rate ")[2].split(" ")[0].lower() or "none" for each in told}
    return {said or "none", *shaped}


def left_on(lab: LabUnderTest) -> str:
    """Processes of a measurement."""
    return "".join(lab.ssh(host, "pgrep -af 'payload/.*/run[.]py (articles|probes[.]locks)'") for host in lab.hosts)


@pytest.mark.slow
def test_retrieval_over_ssh_is_exact_and_leaves_nothing(nodectl: Cli, lab4: LabUnderTest, venv_inventory: str) -> None:
    hosts = ",".join(lab4.hosts[:2])
    small = ("--rows", "5001", "--dim", "32", "--batch", "1,8", "--duration", "0.05", "--repetitions", "2")
    done = nodectl(
        "-i", lab4.inventory, "-i", venv_inventory, "-l", hosts, "--output", "json", "bench", "retrieval", *small
    )
    document = json.loads(done.stdout)
    assert (document["schema"], document["findings"]) == ("nodectl.bench-retrieval/1", [])
    for each, batch in zip(document["measurements"], (1, 8), strict=True):
        given = each["conditions"]
        assert (each["unit"], each["hosts"]) == ("ms", list(lab4.hosts[:2]))
        assert (given["batch_size"], given["correct"], given["checked_rows"]) == (batch, True, 5001)
        assert 0 < given["search_ms"] < given["max_ms"]
        assert given["min_ms"] <= each["value"] <= given["p99_ms"]
    assert left_on(lab4) == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sweep_rises_with_the_rate(nodectl: Cli, lab2: LabUnderTest, venv_inventory: str) -> None:
    args = ("-i", lab2.inventory, "-i", venv_inventory, "--output", "json", "bench", "network-sweep")
    done = nodectl(*args, "--rates", "20mbit,400mbit", "--repetitions", "3", "--duration", "1", timeout=500)
    document: dict[str, Any] = json.loads(done.stdout)
    assert [row["rate"] for row in document["rows"]] == ["20mbit", "400mbit"]
    # the link is the limit at the one rate, and far from it at the other
    assert document["rising"] is True and document["ratio"] > 2
    slow, fast = document["rows"]
    assert slow["retrieval"]["p50_ms"] > fast["retrieval"]["p50_ms"]
    # each of two hosts sends as much as the gradients have, at 20 Mbit/s
    (many,) = [
        each["conditions"]
        for each in document["measurements"]
        if each["probe"] == "training" and len(each["hosts"]) == 2 and each["conditions"]["rate"] == "20mbit"
    ]
    assert many["step_ms"] > 0.9 * 1e3 * many["gradient_bytes"] * 8 / 20e6
    assert all(row["spread"][name] is not None for row in document["rows"] for name in row["spread"])
    assert document["scaled"] is True and left_on(lab2) == ""
    assert rates_of(nodectl, lab2) == {"500mbit"}


@pytest.mark.slow
def test_an_interrupted_sweep_puts_the_links_back(nodectl: Cli, lab2: LabUnderTest, venv_inventory: str) -> None:
    argv = [sys.executable, "-m", "nodectl", "-i", lab2.inventory, "-i", venv_inventory]
    argv += ["bench", "network-sweep", "--rates", "100mbit"]
    with subprocess.Popen(argv, env=dict(nodectl.env), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "training: 2 ranks" not in process.stderr.readline():
            assert process.poll() is None
        assert rates_of(nodectl, lab2) == {"100mbit"}
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert process.returncode not in (0, None)
    assert rates_of(nodectl, lab2) == {"500mbit"}
    until = time.monotonic() + 20
    while left_on(lab2):
        assert time.monotonic() < until, left_on(lab2)


@pytest.mark.slow
def test_scaling_over_ssh_and_its_runs_compared(
    nodectl: Cli, lab2: LabUnderTest, venv_inventory: str, tmp_path: Path
) -> None:
    wish = ("--workload", "transformer", "--devices", "1,2", "--parallel", "ddp,nonsense")
    amount = ("--steps", "4", "--repetitions", "1")
    where = ("-i", lab2.inventory, "-i", venv_inventory)
    argv = (*where, "bench", "scaling", *wish, *amount, "--output", "json")
    done = nodectl(*argv, check=False)
    document = json.loads(done.stdout)
    one, two, refused = document["rows"]
    assert (one["devices"], one["nodes"], one["parallel"], one["efficiency"]) == (1, 1, "single", 1.0)
    assert (two["devices"], two["nodes"], two["parallel"]) == (2, 2, "ddp") and two["value"] > 0
    assert two["summaries"][0]["hosts"] == list(lab2.hosts) and two["batch"] == 2 * one["batch"]
    # a strategy that the program does not know is told in its words, and fails
    assert "invalid choice: 'nonsense'" in refused["why"] and done.returncode == 1
    assert left_on(lab2) == ""
    (tmp_path / "runs.json").write_text(done.stdout)
    compared = nodectl("bench", "compare", *[str(tmp_path / "runs.json")] * 2, "--output", "json")
    (section,) = json.loads(compared.stdout)["sections"]
    assert section["runs"] == {"before": 2, "after": 2}
