"""Every kind of login: what needs only the login works for all, what becomes root does, or says why it cannot.

.venv/bin/pytest tests/privilege/test_every_command.py
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodectl.trials.propose import proposal_of, propose
from tests.conftest import Cli, LabUnderTest
from tests.privilege.logins import WAYS, Watcher, Way, files_with_password, logins_on, write_passwords
from tests.privilege.test_become_in_lab import assert_becomes
from tests.trials.saved_trial import trial

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
_LIMITS = "/etc/security/limits.d/90-nodectl.conf"
_WMEM = "4096 16384 16777216"


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

    def changed(self) -> str:
        """What the tests' changes would change, of all hosts, as root sees it."""
        look = f"sysctl -n net.ipv4.tcp_wmem | tr '\\t' ' '; ls {_LIMITS} 2>/dev/null"
        return "\n".join(self.lab.ssh(host, look) for host in self.lab.hosts)


def _named(*names: str) -> list[Way]:
    return [way for way in WAYS if way.name in names]


@pytest.fixture(scope="module")
def fleet(nodectl: Cli, lab_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """What ends with it: nobody has seen the password, and no file holds it, here or there."""
    folder = tmp_path_factory.mktemp("rights")
    with nodectl.lab(f"rights-{os.getpid()}", 2) as lab:
        if "sudo" not in lab.ssh(lab.hosts[0], "command -v sudo"):
            pytest.skip("no sudo on the lab's hosts: install the package sudo on this machine")
        write_passwords(folder, str(Path(sys.executable).with_name("ansible-vault")))
        nodectl("-i", lab.inventory, "provision", "--yes", "--tags", "python,pytorch,launcher", timeout=600)
        with logins_on(lab, lab.hosts):
            with Watcher() as watcher:
                yield Fleet(nodectl, lab, folder)
            left = files_with_password(lab, lab.hosts, {"state": str(folder / "state")})
        assert watcher.looks > 10 and watcher.seen == {} and left == {}


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
def test_root_or_a_reason(fleet: Fleet, way: Way) -> None:
    assert_becomes(fleet.cli, fleet.lab, "node01,node02", way, fleet.folder, fleet.state)


@pytest.mark.parametrize("way", _named("p-none", "p-ask typed", "p-ask vault", "p-noisy"), ids=lambda way: way.name)
def test_what_becomes_root_does_all_of_it_or_nothing(fleet: Fleet, way: Way, tmp_path: Path) -> None:
    won = tmp_path / "won.yml"
    proposal = proposal_of(trial(hosts={host: {} for host in fleet.lab.hosts}), None)
    propose(replace(proposal, overrides={"sysctl": {"net.ipv4.tcp_wmem": _WMEM}}), won)
    before = fleet.changed()
    assert _WMEM not in before and _LIMITS not in before
    for argv, there, gone in (
        (("provision", "--check", "--tags", "limits"), (), (_LIMITS,)),
        (("provision", "--yes", "--tags", "limits"), (_LIMITS,), ()),
        (("tune", "apply", "--yes", str(won)), (_LIMITS, _WMEM), ()),
        (("tune", "rollback", "--yes"), (_LIMITS,), (_WMEM,)),
        (("rollback", "--yes"), (), (_LIMITS, _WMEM)),
    ):
        if not way.refused:
            fleet.run(way, *argv)
            now = fleet.changed()
            assert all(now.count(text) == len(fleet.lab.hosts) for text in there), f"{argv}: {now}"
            assert not any(text in now for text in gone), f"{argv}: {now}"
        elif argv[:2] != ("tune", "rollback"):  # there was no apply to take back
            said = fleet.run(way, *argv, status=1)
            assert way.refused in said, said
    assert fleet.changed() == before


@pytest.mark.parametrize("way", _named("p-none", "p-ask vault"), ids=lambda way: way.name)
def test_a_trial_becomes_root_for_each_turn_or_measures_none(fleet: Fleet, way: Way) -> None:
    before = fleet.changed()
    what = ("--profiles", "stock,article-20g", "--probes", "latency", "--duration", "0.05")
    words = ["-i", fleet.lab.inventory, *way.options(fleet.folder), "--output", "json", "tune", "trial", "--yes"]
    env = {"XDG_STATE_HOME": str(fleet.state)}
    done = fleet.cli(*words, *what, "--pairs", "5", check=False, timeout=900, env=env)
    said = done.stdout + done.stderr
    assert way.refused in said and "Traceback" not in said, said
    document = json.loads(done.stdout)
    # of what makes no difference it may be undecided
    assert done.returncode in ((1,) if way.refused else (0, 3)), said
    assert document["complete"] is not bool(way.refused), said
    assert fleet.changed() == before
