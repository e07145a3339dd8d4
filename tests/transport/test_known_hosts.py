"""known_hosts as OpenSSH reads it; ssh-keygen is the judge of what is written."""

import base64
import subprocess
from pathlib import Path

import pytest

from nodectl.transport.known_hosts import KnownHosts, Standing, fingerprint, store


def key(number: int) -> bytes:
    """A made-up ed25519 key in its wire form."""
    kind = b"ssh-ed25519"
    return len(kind).to_bytes(4, "big") + kind + (32).to_bytes(4, "big") + bytes([number]) * 32


def line(names: str, number: int, marker: str = "") -> str:
    return f"{marker} {names} ssh-ed25519 {base64.b64encode(key(number)).decode()} comment\n".lstrip()


def read(tmp_path: Path, *lines: str) -> KnownHosts:
    path = tmp_path / "known_hosts"
    path.write_text("".join(lines))
    return KnownHosts.read([path, tmp_path / "absent"])


@pytest.mark.parametrize(
    ("names", "name", "port", "standing"),
    [
        ("gpu01,10.0.0.1", "10.0.0.1", 22, Standing.KNOWN),
        ("gpu01", "gpu02", 22, Standing.UNKNOWN),
        ("[gpu01]:2222", "gpu01", 2222, Standing.KNOWN),
        ("gpu01", "gpu01", 2222, Standing.KNOWN),
        ("gpu*,!gpu07", "gpu01", 22, Standing.KNOWN),
        ("gpu*,!gpu07", "gpu07", 22, Standing.UNKNOWN),
        ("[gpu*]:2222", "gpu01", 2222, Standing.KNOWN),
    ],
)
def test_names(tmp_path: Path, names: str, name: str, port: int, standing: Standing) -> None:
    assert read(tmp_path, line(names, 1)).standing(name, port, key(1)) is standing


def test_markers(tmp_path: Path) -> None:
    known = read(tmp_path, line("a", 1), line("*", 1, "@revoked"), line("*.lan", 3, "@cert-authority"))
    assert known.standing("a", 22, key(1)) is Standing.REVOKED
    assert known.standing("b.lan", 22, key(4)) is Standing.AUTHORITY


def test_hashed_by_openssh(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("gpu01", 1) + line("[gpu02]:2222", 2))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    known = KnownHosts.read([path])
    assert "gpu" not in path.read_text()
    assert known.standing("gpu01", 22, key(1)) is Standing.KNOWN
    assert known.standing("gpu02", 2222, key(2)) is Standing.KNOWN
    assert known.standing("gpu02", 22, key(2)) is Standing.UNKNOWN


def test_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_text(line("", 9).replace(" comment", "").strip() + "\n")
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    assert fingerprint(key(9)) == said.split()[1]


def test_store_replaces_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / ".ssh" / "known_hosts"
    path.parent.mkdir()
    path.write_text("# mine\n" + line("a,b", 1) + line("c", 2) + line("a", 3, "@revoked"))
    store(path, {"a": [key(4), key(5)], "[d]:2222": [key(6)]})
    known = KnownHosts.read([path])
    assert known.standing("a", 22, key(5)) is Standing.KNOWN
    assert known.standing("a", 22, key(1)) is Standing.CHANGED
    assert known.standing("b", 22, key(1)) is Standing.KNOWN
    assert known.standing("c", 22, key(2)) is Standing.KNOWN
    assert known.standing("d", 2222, key(6)) is Standing.KNOWN
    assert path.read_text().startswith("# mine\n")
    assert "@revoked" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    found = subprocess.run(["ssh-keygen", "-F", "[d]:2222", "-f", str(path)], capture_output=True, check=False)
    assert found.returncode == 0
