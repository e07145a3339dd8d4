"""`nodectl exec` and `nodectl hostkeys` against a real sshd."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd


class Nodectl(Protocol):
    """The command line (see tests/conftest.py)."""

    def __call__(self, *args: str, check: bool = ..., input: str | None = ...) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def stranger(sshd: Sshd, tmp_path: Path) -> tuple[str, Path]:
    """An inventory whose known_hosts file does not exist yet, and that file."""
    path, known = sshd.inventory(tmp_path, "web[1:2]"), tmp_path / "known_hosts"
    path.write_text(path.read_text().replace(str(sshd.known_hosts), str(known)))
    return str(path), known


def state(nodectl: Nodectl, inventory: str) -> tuple[int, set[str]]:
    done = nodectl("-i", inventory, "--output", "json", "hostkeys", "show", check=False)
    document = json.loads(done.stdout)
    assert document["schema"] == "nodectl.hostkeys/1"
    return done.returncode, {key["state"] for host in document["hosts"] for key in host["keys"]}


def test_unknown_keys_are_shown_asked_for_and_stored(nodectl: Nodectl, sshd: Sshd, stranger: tuple[str, Path]) -> None:
    inventory, known = stranger
    assert state(nodectl, inventory) == (0, {"unknown"})
    refused = nodectl("-i", inventory, "exec", "--", "true", check=False)
    assert refused.returncode == 3
    assert "web[1-2]  unreachable: unknown host key" in refused.stdout
    assert refused.stdout.count("nodectl hostkeys accept") == 1
    for answer in ("n\n", ""):
        assert nodectl("-i", inventory, "hostkeys", "accept", check=False, input=answer).returncode == 2
    assert not known.exists()
    accepted = nodectl("-i", inventory, "hostkeys", "accept", input="y\n")
    assert "SHA256:" in accepted.stdout
    assert known.read_text() == f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n"
    assert known.stat().st_mode & 0o777 == 0o600
    assert state(nodectl, inventory) == (0, {"known"})
    nodectl("-i", inventory, "exec", "--", "true")
    assert nodectl("-i", inventory, "hostkeys", "accept", "--yes").returncode == 0


def test_changed_keys_need_replace(nodectl: Nodectl, sshd: Sshd, stranger: tuple[str, Path]) -> None:
    inventory, known = stranger
    other = " ".join((sshd.folder / "authorized_keys").read_text().split()[:2])
    wrong = f"[127.0.0.1]:{sshd.port} {other}\nelse.where {other}\n"
    known.write_text(wrong)
    assert state(nodectl, inventory) == (1, {"changed"})
    assert nodectl("-i", inventory, "hostkeys", "accept", "--yes", check=False).returncode == 1
    assert known.read_text() == wrong
    nodectl("-i", inventory, "hostkeys", "accept", "--yes", "--replace")
    assert known.read_text() == f"else.where {other}\n[127.0.0.1]:{sshd.port} {sshd.host_key}\n"
    nodectl("-i", inventory, "exec", "--", "true")


def test_keys_behind_a_jump_host(nodectl: Nodectl, sshd: Sshd, jump_sshd: Sshd, stranger: tuple[str, Path]) -> None:
    inventory, known = stranger
    text = Path(inventory).read_text()
    via = f"-F {known.parent / 'config'} -J 127.0.0.1:{jump_sshd.port}"
    (known.parent / "config").write_text(f"UserKnownHostsFile {known}\n")
    Path(inventory).write_text(text.replace(f"-o UserKnownHostsFile={known}", via))
    accepted = nodectl("-i", inventory, "hostkeys", "accept", "--yes")
    assert accepted.stdout.count("SHA256:") == 2
    assert sorted(line.split()[0] for line in known.read_text().splitlines()) == sorted(
        f"[127.0.0.1]:{server.port}" for server in (sshd, jump_sshd)
    )
    nodectl("-i", inventory, "exec", "--", "true")
