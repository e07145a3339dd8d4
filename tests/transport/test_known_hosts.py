"""known_hosts as OpenSSH reads it."""

import base64
import subprocess
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.transport.known_hosts import Standing, find_entries, fingerprint, standing, store


def key(number: int) -> bytes:
    """A made-up ed25519 key in its wire form."""
    kind = b"ssh-ed25519"
    return len(kind).to_bytes(4, "big") + kind + (32).to_bytes(4, "big") + bytes([number]) * 32


def line(names: str, number: int, marker: str = "") -> str:
    return f"{marker} {names} ssh-ed25519 {base64.b64encode(key(number)).decode()} comment\n".lstrip()


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize(
    ("lines", "name", "port", "expected"),
    [
        (line("gpu01,10.0.0.1", 1), "10.0.0.1", 22, Standing.KNOWN),
        (line("gpu01", 1), "GPU01", 22, Standing.KNOWN),
        (line("gpu01", 1), "gpu02", 22, Standing.UNKNOWN),
        (line("gpu01", 2), "gpu01", 22, Standing.CHANGED),
        (line("[gpu01]:2222", 1), "gpu01", 2222, Standing.KNOWN),
        (line("[gpu01]:2222", 1), "gpu01", 22, Standing.UNKNOWN),
        (line("gpu01", 1), "gpu01", 2222, Standing.KNOWN),
        (line("gpu01", 1) + line("*", 2, "@revoked"), "gpu01", 2222, Standing.KNOWN),
        (line("gpu*,!gpu07", 1), "gpu01", 22, Standing.KNOWN),
        (line("gpu*,!gpu07", 1), "gpu07", 22, Standing.UNKNOWN),
        (line("[gpu*]:2222", 1), "gpu01", 2222, Standing.KNOWN),
        (line("a", 1) + line("*", 1, "@revoked"), "a", 22, Standing.REVOKED),
        (line("*.lan", 1, "@cert-authority"), "b.lan", 22, Standing.UNKNOWN),
    ],
)
def test_standing(tmp_path: Path, lines: str, name: str, port: int, expected: Standing, hashed: bool) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(lines)
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=False, capture_output=True)
    found = find_entries([tmp_path / "absent", path], name, port)
    assert standing(found, key(1)) is expected


def test_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_text(line("", 9).replace(" comment", "").strip() + "\n")
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    assert fingerprint(key(9)) == said.split()[1]


def test_what_is_no_file_stores_no_key() -> None:
    with pytest.raises(UsageError, match="/dev/null keeps no key"):
        store(Path("/dev/null"), "a", "ssh-ed25519", key(1))


def test_store_replaces_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / ".ssh" / "known_hosts"
    store(path, "a", "ssh-ed25519", key(1))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine\n" + line("a", 1) + line("c", 2) + line("a", 3, "@revoked").rstrip())
    store(path, "a", "ssh-ed25519", key(4))
    store(path, "[d]:2222", "ssh-ed25519", key(6))
    expected = {("a", 22, 4), ("c", 22, 2), ("d", 2222, 6)}
    assert {
        one for one in expected if standing(find_entries([path], *one[:2]), key(one[2])) is Standing.KNOWN
    } == expected
    assert standing(find_entries([path], "a", 22), key(1)) is Standing.CHANGED
    assert path.read_text().startswith("# mine\n") and "@revoked" in path.read_text()
