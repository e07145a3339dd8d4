"""An upgrade of three lab hosts to another environment: killed at six moments, a job in its way, a bad canary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("lab_machine")]
_NAME = f"upgrade-{os.getpid()}"
_HOSTS = ("node01", "node02", "node03")
_NEXT = """\
description: "sympy pinned, without pandas and pyarrow"
python: {min: "3.10", max: "3.13"}
torch: "2.13.0"
index: cpu
packages: {numpy: "2.2.6", sympy: "1.14.0", torchvision: "0.28.0"}
"""
# the figures of three hosts on a busy machine scatter
_OPTIONS = ("--yes", "--tolerance", "85")


@dataclass(frozen=True)
class Fleet:
    """Three hosts with the stack `cpu`, beside which `next` lies."""

    cli: Cli
    inventory: str

    def run(self, *args: str, check: bool = True, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        return self.cli("-i", self.inventory, *args, check=check, timeout=timeout)

    def document(self, *args: str) -> Any:
        return json.loads(self.run("--output", "json", *args, check=False).stdout)

    def states(self) -> dict[str, str]:
        return {row["host"]: row["phase"] for row in self.document("upgrade")["upgrade"]["hosts"]}

    def cordoned(self) -> set[str]:
        return {row["host"] for row in self.document("ledger", "list")["hosts"] if row["cordoned"]}

    def stacks(self) -> dict[str, str]:
        """Which of the two each host's environment was made for."""
        argv = ("exec", "--", "cat", "/opt/nodectl/venv/nodectl-environment.json")
        return {host: "old" if "pandas==" in self.run("-l", host, *argv).stdout else "new" for host in _HOSTS}

    def begun(self, *args: str) -> tuple[subprocess.Popen[str], Iterator[str]]:
        """Begin an upgrade; the process, and what it says line by line."""
        argv = [sys.executable, "-m", "nodectl", "-i", self.inventory, "upgrade", *args, *_OPTIONS]
        child = subprocess.Popen(argv, env=dict(self.cli.env), stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        return child, iter(child.stderr)

    def killed_at(self, moment: str, *args: str) -> None:
        """Begin an upgrade, and kill it with all that it has started as soon as it says that."""
        child, lines = self.begun(*args)
        assert any(moment in line for line in lines), f"{moment} never came"
        for process in [*psutil.Process(child.pid).children(recursive=True), child]:
            with suppress(psutil.Error):
                process.kill()
        child.wait()


@pytest.fixture
def fleet(cli_env: dict[str, str], tmp_path: Path) -> Iterator[Fleet]:
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path / "state")})
    lab = cli("lab", "up", "-n", str(len(_HOSTS)), "--name", _NAME).stdout.strip()
    try:
        cli("-i", lab, "init", str(tmp_path / "fleet"), "--from", ",".join(_HOSTS))
        profiles = tmp_path / "fleet" / "profiles" / "stack"
        profiles.mkdir(parents=True)
        (profiles / "next.yml").write_text(_NEXT)
        made = Fleet(cli, str(tmp_path / "fleet" / "hosts.yml"))
        made.run("provision", "--yes", "--tags", "python,pytorch,launcher")
        yield made
    finally:
        cli("lab", "down", "--name", _NAME)


def test_killed_at_six_moments_it_goes_on_to_the_end(fleet: Fleet) -> None:
    args = ["--to", "next"]
    before, amid = ("step health", "gemm: "), ("changing node01", "Make the environment", "Write the launcher")
    for moment in (*before, *amid, "changing node02"):
        fleet.killed_at(moment, *args)
        args = ["--resume"]
        states, stacks, cordoned = fleet.states(), fleet.stacks(), fleet.cordoned()
        for host, state in states.items():
            assert state.startswith(("half", stacks[host])), (moment, host, state, stacks)
            assert (host in cordoned) is (state not in ("old", "new")), (moment, host, state)
    assert "upgrading 1 of 3 hosts to next" in fleet.run("health", check=False).stderr
    assert "upgrading 1 of 3" in fleet.run("provision", "--check", "-l", "node03", "--tags", "launcher").stderr
    done = fleet.run("--output", "json", "upgrade", "--resume", *_OPTIONS, timeout=2700)
    assert set(fleet.states().values()) == {"new"} and set(fleet.stacks().values()) == {"new"}
    assert fleet.cordoned() == set() and '{"nodectl_stack": "next"}' in done.stderr
    rows = json.loads(done.stdout)["upgrade"]["hosts"]
    assert all(row["before"] and row["after"] and row["before"] != row["after"] for row in rows)


def test_a_job_in_the_way_is_waited_for_and_a_bad_canary_is_put_back(fleet: Fleet, tmp_path: Path) -> None:
    script = tmp_path / "job" / "sleep.py"
    script.parent.mkdir()
    script.write_text("import time\nprint('on it', flush=True)\ntime.sleep(60)\n")
    job = fleet.run("launch", "-l", "node02", "--detach", "--nproc-per-node", "1", str(script)).stdout.strip()
    child, lines = fleet.begun("--to", "next", "--canary", "node02")
    said = []
    for line in lines:
        said.append(line)
        if "changing node02" in line:
            assert any(f"waiting: node02 runs nodectl's job {job}" in text for text in said)
            assert fleet.document("jobs", "show", job)["jobs"][0]["state"] == "finished"
            fleet.cli("lab", "fault", "--name", _NAME, "clock", "node02")
    assert child.wait(timeout=1800) == 1, said
    rows = {row["host"]: row for row in fleet.document("upgrade")["upgrade"]["hosts"]}
    assert rows["node02"]["phase"] == "old, rejected" and any("clock" in text for text in rows["node02"]["evidence"])
    assert rows["node01"]["phase"] == rows["node03"]["phase"] == "old" and set(fleet.stacks().values()) == {"old"}
    # what ails it is the host's own: it is not returned
    assert any("put back, and still" in text for text in rows["node02"]["evidence"])
    assert fleet.cordoned() == {"node02"}
