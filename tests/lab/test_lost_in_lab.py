"""A cable that is cut in the middle of a probe, on a live fleet."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("lab_machine")]

# three rounds of pairs, both directions, twice 2 s each
_PROBE = ("probe", "tcp", "--duration", "2", "--repetitions", "2")
_MISSED_S = 30.0


@pytest.fixture
def lab(cli_env: dict[str, str], tmp_path: Path) -> Iterator[tuple[Cli, str]]:
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path)})
    with cli.lab("cut", 4, "--rate", "200mbit") as made:
        yield cli, made.inventory


def test_a_cut_link_is_one_finding_and_is_not_waited_for(lab: tuple[Cli, str]) -> None:
    cli, inventory = lab
    # as long as this machine takes for it now, with whatever else it does
    usual_s = _took_s(lambda: cli("-i", inventory, *_PROBE))
    began = time.monotonic()
    argv = [sys.executable, "-m", "nodectl", "-i", inventory, "--output", "json", *_PROBE]
    with subprocess.Popen(argv, env=dict(cli.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as probe:
        assert probe.stderr is not None
        for line in probe.stderr:
            if "round 1" in line:
                break
        time.sleep(3)
        cli("lab", "fault", "link-down", "node03", "--name", "cut")
        out, _ = probe.communicate(timeout=200)
    findings = [(each["host"], each["status"], each["subject"]) for each in json.loads(out)["findings"]]
    assert findings == [("node03", "unknown", "lost")] and probe.returncode == 3
    assert time.monotonic() - began < usual_s + _MISSED_S


def _took_s(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
