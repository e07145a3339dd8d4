"""Looks up and stores host keys in OpenSSH's known_hosts files, which `ssh-keygen` reads."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nodectl.errors import UsageError

_SSH_PORT = 22


class Standing(StrEnum):
    """The verdict of known_hosts on a host's key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a file for a host; `marker` is `@revoked`, `@cert-authority` or empty, `key` is base64."""

    path: Path
    marker: str
    kind: str
    key: str


def find_entries(paths: Sequence[Path], name: str, port: int) -> list[Entry]:
    """Return the entries for host and port, and those for the host alone if the first have no key, as OpenSSH does."""
    found = [entry for path in paths for entry in _lines(path, written(name, port))]
    if port != _SSH_PORT and all(entry.marker for entry in found):
        found += [entry for path in paths for entry in _lines(path, written(name, _SSH_PORT))]
    return found


def standing(entries: Sequence[Entry], key: bytes) -> Standing:
    """Return the verdict of a host's entries on the key (in wire form) that it offers."""
    encoded = base64.b64encode(key).decode()
    if any(entry.marker == "@revoked" and entry.key == encoded for entry in entries):
        return Standing.REVOKED
    plain = [entry.key for entry in entries if not entry.marker]
    if encoded in plain:
        return Standing.KNOWN
    return Standing.CHANGED if plain else Standing.UNKNOWN


def written(name: str, port: int) -> str:
    """Return the name as known_hosts has it: `host`, or `[host]:port` if the port is not 22."""
    return name.lower() if port == _SSH_PORT else f"[{name.lower()}]:{port}"


def fingerprint(key: bytes) -> str:
    """SHA256:… of a key in its wire form, as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def remove_command(path: Path, name: str) -> list[str]:
    """Return the command that removes the keys of a `written` name; it keeps lines with a marker."""
    return ["ssh-keygen", "-R", name, "-f", str(path)]


def store(path: Path, name: str, kind: str, key: bytes) -> None:
    """Add the key of a `written` name to the file at `path`, in place of those that it has for the name."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} keeps no key", "name a file: UserKnownHostsFile")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(_lines(path, name)):
        subprocess.run(remove_command(path, name), capture_output=True, check=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+b") as file:
        file.seek(0)
        cut = b"" if file.read()[-1:] in (b"", b"\n") else b"\n"
        file.write(cut + f"{name} {kind} {base64.b64encode(key).decode()}\n".encode())


def _lines(path: Path, name: str) -> Iterator[Entry]:
    if not path.is_file():
        return
    argv = ["ssh-keygen", "-F", name, "-f", str(path)]
    found = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False).stdout
    for line in found.splitlines():
        fields = line.split()
        marker = fields.pop(0) if line.startswith("@") else ""
        if len(fields) >= 3 and not line.startswith("#"):
            yield Entry(path, marker, fields[1], fields[2])
