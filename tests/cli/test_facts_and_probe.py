"""`nodectl facts` and `nodectl probe`: options, exit statuses, and the lab seen through them."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

LOCAL = "[all]\nhere ansible_connection=local\n"
UNKNOWN, USAGE = 3, 2


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("inventory") / "hosts.ini"
    path.write_text(LOCAL)
    return str(path)


def test_facts_of_this_machine(nodectl: Callable[..., Any], local: str) -> None:
    document = json.loads(nodectl("-i", local, "--output", "json", "facts").stdout)
    subjects = document["hosts"]["here"]
    assert document["schema"] == "nodectl.facts/1"
    assert document["unreachable"] == {}
    assert {"cpu", "memory", "nics", "kernel", "versions", "gpus", "disk", "time", "lab"} <= set(subjects)
    assert subjects["cpu"]["threads"] >= 1
    assert subjects["memory"]["total_mib"] > 0
    table = nodectl("-i", local, "facts").stdout
    assert re.search(r"^cpu +here +\S", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["tcp"], "only one is selected"),
        (["memory", "--budget", "0.001"], "the memory probe takes at least"),
    ],
)
def test_usage(nodectl: Callable[..., Any], local: str, args: list[str], told: str) -> None:
    done = nodectl("-i", local, "probe", *args, check=False)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert told in done.stderr


@pytest.fixture(scope="module")
def slow_lab(nodectl: Callable[..., Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Two hosts of its own, at 1 Gbit/s."""
    name = ("--name", "probe-test")
    done = nodectl("lab", "up", "-n", "2", "--rate", "1gbit", *name, check=False)
    if done.returncode != 0:
        pytest.skip(f"no lab here: {done.stderr.strip()}")
    try:
        yield done.stdout.strip(), json.loads(nodectl("lab", "status", "--output", "json", *name).stdout)
    finally:
        nodectl("lab", "down", *name)


def by_hand(status: dict[str, Any], sender: str, receiver: str) -> float:
    """Gbit/s as a person would measure it."""
    address = {host["name"]: host["address"] for host in status["hosts"]}
    ssh = ["ssh", "-F", status["ssh_config"]]
    subprocess.run([*ssh, receiver, "iperf3 -s -1 -D"], check=True, timeout=30)
    argv = [*ssh, sender, f"sleep 0.5; iperf3 -J -t 3 -c {address[receiver]}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 1e9


@pytest.mark.lab
class TestLab:
    def test_tcp_is_what_a_person_measures(
        self, nodectl: Callable[..., Any], slow_lab: tuple[str, dict[str, Any]]
    ) -> None:
        inventory, status = slow_lab
        for last in (False, False, True):  # a moment in which the machine was busy spoils one of the two figures
            done = nodectl("-i", inventory, "--output", "json", "probe", "tcp", "--repetitions", "1")
            document = json.loads(done.stdout)
            assert document["findings"] == []
            values = {tuple(each["hosts"]): each["value"] for each in document["measurements"]}
            expected = {hosts: by_hand(status, *hosts) for hosts in (("node01", "node02"), ("node02", "node01"))}
            assert all(each["conditions"]["mtu"] == [1500, 1500] for each in document["measurements"])
            if values == pytest.approx(expected, rel=0.03):
                break
            assert not last, (values, expected)

    def test_a_missing_tool_is_a_finding_and_nothing_is_left_running(
        self, nodectl: Callable[..., Any], slow_lab: tuple[str, dict[str, Any]]
    ) -> None:
        inventory, _ = slow_lab
        nodectl("-i", inventory, "-l", "node02", "exec", "--", "mv", "/usr/bin/iperf3", "/usr/bin/iperf3.off")
        done = nodectl("-i", inventory, "--output", "json", "probe", "tcp", check=False)
        nodectl("-i", inventory, "-l", "node02", "exec", "--", "mv", "/usr/bin/iperf3.off", "/usr/bin/iperf3")
        (finding,) = json.loads(done.stdout)["findings"]
        assert done.returncode == UNKNOWN
        assert (finding["host"], finding["kind"], finding["actual"]) == ("node02", "host", "iperf3 is not installed")
        left = nodectl("-i", inventory, "exec", "--", "sh", "-c", "ps ax | grep '[p]robe_' || true").stdout
        assert "probe_" not in left
