"""Whether a login becomes root, and what is said where not; the password is seen by sudo alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest
from tests.privilege.logins import WAYS, Watcher, Way, files_with_password, logins_on, write_passwords

# one that is taken and one that is refused; test_every_command.py has all of them
_HERE = ("p-look vault", "p-ask wrong")


@pytest.mark.lab
def test_a_password_is_taken_or_refused_and_seen_by_nobody(
    nodectl: Cli, lab4: LabUnderTest, tmp_path: Path, cli_env: dict[str, str]
) -> None:
    host = lab4.hosts[1]
    if "sudo" not in lab4.ssh(host, "command -v sudo"):
        pytest.skip("no sudo on the lab's hosts: install the package sudo on this machine")
    secrets, state = tmp_path / "secrets", tmp_path / "state"
    secrets.mkdir()
    write_passwords(secrets, str(Path(sys.executable).with_name("ansible-vault")))
    ways = {way.name: way for way in WAYS}
    with logins_on(lab4, (host,), ("p-look", "p-ask")):
        with Watcher() as watcher:
            for name in _HERE:
                assert_becomes(nodectl, lab4, host, ways[name], secrets, state)
        left = files_with_password(lab4, (host,), {"state": str(state)})
    assert watcher.looks > 5 and watcher.seen == {} and left == {}


def assert_becomes(cli: Cli, lab: LabUnderTest, hosts: str, way: Way, secrets: Path, state: Path) -> None:
    """`rollback --list`, the least that becomes root, does as the way says."""
    argv = ["-i", lab.inventory, "-l", hosts, *way.options(secrets), "rollback", "--list"]
    env = {"XDG_STATE_HOME": str(state), **way.environment(secrets)}
    done = cli(*argv, check=False, env=env, input=way.typed)
    said = done.stdout + done.stderr
    assert done.returncode == (1 if way.refused else 0), f"{way.name}: {said}"
    assert way.refused in said and "Traceback" not in said, f"{way.name}: {said}"
    if way.refused:
        assert "failed at 'List them'" in said and "docs/sudoers.md" in said, f"{way.name}: {said}"
