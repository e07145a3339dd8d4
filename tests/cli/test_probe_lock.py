"""A host is measured by one nodectl at a time, and not under work: who holds it is named, and --force goes on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Cli, LabUnderTest

# half a minute; tests/probes/test_locks.py does the same with two processes
pytestmark = pytest.mark.slow

FAILED = 1
QUICK = ("probe", "latency", "--duration", "0.1", "--repetitions", "1")


@pytest.fixture
def other(nodectl: Cli, lab4: LabUnderTest) -> Iterator["subprocess.Popen[str]"]:
    """Another nodectl, which measures the first two hosts for a while."""
    argv = [sys.executable, "-m", "nodectl", "-i", lab4.inventory, "-l", ",".join(lab4.hosts[:2])]
    argv += ["probe", "tcp", "--duration", "20"]
    with subprocess.Popen(argv, env=dict(nodectl.env), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "round 1" not in process.stderr.readline():
            assert process.poll() is None
        yield process
        if process.poll() is None:
            process.kill()


def ask(nodectl: Cli, lab: LabUnderTest, *args: str) -> tuple[int, dict[str, Any]]:
    done = nodectl("-i", lab.inventory, "-l", ",".join(lab.hosts[1:3]), "--output", "json", *args, check=False)
    return done.returncode, json.loads(done.stdout)


def test_the_host_in_use_is_named_and_free_when_the_other_is_killed(
    nodectl: Cli, lab4: LabUnderTest, other: "subprocess.Popen[str]"
) -> None:
    status, document = ask(nodectl, lab4, *QUICK)
    (finding,) = document["findings"]
    assert status == FAILED and document["measurements"] == []
    assert (finding["host"], finding["check"], finding["kind"]) == (lab4.hosts[1], "lock", "host")
    assert "for 'probe tcp' since" in finding["actual"]
    status, document = ask(nodectl, lab4, *QUICK, "--force")
    assert status == 0 and len(document["measurements"]) == 2
    assert [each["status"] for each in document["findings"]] == ["warning"]
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    status, document = ask(nodectl, lab4, *QUICK)
    assert status == 0 and document["findings"] == [] and len(document["measurements"]) == 2
