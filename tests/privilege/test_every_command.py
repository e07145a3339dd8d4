"""Every kind of login: what needs only the login works for all, what becomes root does, or says why it cannot.

.venv/bin/pytest tests/privilege/test_every_command.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest
from tests.privilege.logins import TYPED, WAYS, Watcher, Way, files_with_password, logins_on, write_passwords
from tests.privilege.test_become_in_lab import assert_becomes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]

_SCRIPT = "import sys, time\nprint('up', flush=True)\ntime.sleep(float(sys.argv[1]))\n"
_LOOKS = (
    ("exec", "--", "id", "-un"),
    ("facts",),
    ("health", "--tuning", "stock", "--stack", "none"),
    ("topology",),
    ("probe", "memory", "--duration", "0.2"),
    ("probe", "tcp", "--duration", "0.2"),
    ("probe", "nccl", "--sizes", "64KiB"),
    ("probe", "rdma"),
    ("accept", "--level", "quick", "--dry-run"),
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two lab hosts with all logins, and an operator whose state lies in a folder of its own."""

    cli: Cli
    lab: LabUnderTest
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def run(self, way: Way, *argv: str, status: int = 0) -> str:
        """Both outputs of a command that ended with `status`."""
        words = ["-i", self.lab.inventory, *way.options(self.folder), *argv]
        env = {"XDG_STATE_HOME": str(self.state), **way.environment(self.folder)}
        done = self.cli(*words, check=False, timeout=600, env=env, input=way.typed)
        said = done.stdout + done.stderr
        assert done.returncode == status, f"{way.name}: {argv} ended with {done.returncode}\n{said}"
        assert "Traceback" not in said, f"{way.name}: {argv}\n{said}"
        return said


@pytest.fixture(scope="module")
def fleet(nodectl: Cli, lab_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """What ends with it: nobody has seen the password, and no file holds it, here or there."""
    name, folder = f"rights-{os.getpid()}", tmp_path_factory.mktemp("rights")
    inventory = nodectl("lab", "up", "-n", "2", "--name", name).stdout.strip()
    try:
        lab = LabUnderTest(inventory, {}, ("node01", "node02"), str(Path(inventory).with_name("ssh_config")))
        if "sudo" not in lab.ssh(lab.hosts[0], "command -v sudo"):
            pytest.skip("no sudo on the lab's hosts: install the package sudo on this machine")
        write_passwords(folder, str(Path(sys.executable).with_name("ansible-vault")))
        nodectl("-i", inventory, "provision", "--yes", "--tags", "python,pytorch,launcher", timeout=600)
        with logins_on(lab, lab.hosts):
            with Watcher() as watcher:
                yield Fleet(nodectl, lab, folder)
            left = files_with_password(lab, lab.hosts, {"state": str(folder / "state")})
        assert watcher.looks > 10 and watcher.seen == {} and left == {}
    finally:
        nodectl("lab", "down", "--name", name)


def test_who_has_the_password_in_its_words_is_seen() -> None:
    with Watcher() as watcher:
        argv = [sys.executable, "-c", "import time; time.sleep(2)", TYPED]
        process = subprocess.Popen(argv)
        process.wait()
    assert process.pid in watcher.seen


@pytest.mark.parametrize("login", ["p-none", "p-look", "p-noisy", "p-tty"])
def test_looking_measuring_and_jobs_want_no_more_than_the_login(fleet: Fleet, login: str, tmp_path: Path) -> None:
    way = Way(login)
    for argv in _LOOKS:
        fleet.run(way, *argv)
    fleet.run(way, "record", str(tmp_path / "recording"))
    assert login in fleet.run(way, "exec", "--", "id", "-un")
    script = tmp_path / "code" / "train.py"
    script.parent.mkdir()
    script.write_text(_SCRIPT)
    assert "up" in fleet.run(way, "launch", str(script), "--", "0")
    job = re.findall(r"\d{8}-\d{6}-[0-9a-f]{4}", fleet.run(way, "launch", "--detach", str(script), "--", "600"))
    fleet.run(way, "jobs", "stop", job[-1])
    fleet.run(way, "jobs", "clean")
    assert job[-1] not in fleet.run(way, "jobs", "list")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("strategy", ["mitogen", "linear"])
def test_root_or_a_reason(fleet: Fleet, way: Way, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fleet.cli.env, "NODECTL_STRATEGY", strategy)
    refused = way.refused
    if strategy == "linear" and way.login == "p-tty":
        refused = "sudo wants a terminal (requiretty)"
    if strategy == "linear" and way.name == "p-look vault":  # Ansible itself swallows what sudo says there
        refused = "sudo may let the login run some commands only"
    expected = Way(way.login, way.given, refused)
    assert_becomes(fleet.cli, fleet.lab, "node01,node02", expected, fleet.folder, fleet.state)
