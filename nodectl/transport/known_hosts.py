"""Reads and writes OpenSSH's known_hosts files, and judges a host's key by them."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from nodectl.common.files import replace_file

_SSH_PORT = 22
_REVOKED, _AUTHORITY = "@revoked", "@cert-authority"


class Standing(StrEnum):
    """The verdict of known_hosts on a host's key; `authority`: only a certificate would be accepted."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a file; `key` is base64, and is compared as text."""

    marker: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The entries of known_hosts files, indexed by name: a thousand hosts must not search a thousand lines each."""

    by_name: dict[str, list[Entry]] = field(default_factory=dict)
    hashed: list[tuple[bytes, bytes, Entry]] = field(default_factory=list)
    patterns: list[tuple[tuple[str, ...], Entry]] = field(default_factory=list)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> KnownHosts:
        """Read `paths`; a file that is not there holds nothing, a line that cannot be read is skipped as in OpenSSH."""
        hosts = cls()
        for path in paths:
            for line in _lines(path):
                hosts.add(line)
        return hosts

    def entries(self, name: str, port: int) -> list[Entry]:
        """Return the entries for host and port; if there are none, those for the host alone, as OpenSSH does."""
        return self.entries_named(written(name, port)) or (
            self.entries_named(name.lower()) if port != _SSH_PORT else []
        )

    def standing(self, name: str, port: int, key: bytes) -> Standing:
        """Return the verdict on `key` (in wire form) if the host offers it."""
        encoded = base64.b64encode(key).decode()
        entries = self.entries(name, port)
        if any(entry.marker == _REVOKED and entry.key == encoded for entry in entries):
            return Standing.REVOKED
        plain = [entry for entry in entries if not entry.marker]
        if any(entry.key == encoded for entry in plain):
            return Standing.KNOWN
        if plain:
            return Standing.CHANGED
        return Standing.AUTHORITY if any(entry.marker == _AUTHORITY for entry in entries) else Standing.UNKNOWN

    def entries_named(self, name: str) -> list[Entry]:
        """Return the entries for a name as it is `written`."""
        entries = list(self.by_name.get(name, []))
        entries += [entry for salt, digest, entry in self.hashed if hmac.digest(salt, name.encode(), "sha1") == digest]
        entries += [entry for patterns, entry in self.patterns if _matches(patterns, name)]
        return entries

    def add(self, line: str) -> None:
        """Add one line of a file."""
        fields = line.split()
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) < 3:
            return
        entry = Entry(marker, fields[1], fields[2])
        names = fields[0].lower().split(",") if not fields[0].startswith("|") else [fields[0]]
        if names[0].startswith("|1|"):
            self._add_hashed(names[0], entry)
        elif any(set(name) & set("*?!") for name in names):
            self.patterns.append((tuple(names), entry))
        else:
            for name in names:
                self.by_name.setdefault(name, []).append(entry)

    def _add_hashed(self, text: str, entry: Entry) -> None:
        try:
            salt, digest = (base64.b64decode(part) for part in text[3:].split("|"))
        except (binascii.Error, ValueError):
            return
        self.hashed.append((salt, digest, entry))


def written(name: str, port: int) -> str:
    """Return the name as known_hosts has it: `host`, or `[host]:port` if the port is not 22."""
    return name.lower() if port == _SSH_PORT else f"[{name.lower()}]:{port}"


def fingerprint(key: bytes) -> str:
    """SHA256:… of a key in its wire form, as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


@lru_cache(maxsize=64)
def known_hosts(paths: tuple[Path, ...]) -> KnownHosts:
    """Return the same as `KnownHosts.read`, once a process."""
    return KnownHosts.read(paths)


def store(path: Path, keys: Mapping[str, Sequence[bytes]]) -> None:
    """Write `keys` (`written` name → keys in wire form) into `path`, in place of those that are there for the names.

    The file is replaced as a whole (0600); lines for other hosts stay as they are, and so do those with a marker.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = [line for text in _text(path).splitlines() if (line := _without(text, keys)) is not None]
    kept += [f"{name} {_kind(key)} {base64.b64encode(key).decode()}" for name in keys for key in keys[name]]
    real = path.resolve()  # a symbolic link stays one
    replace_file(real, "".join(f"{line}\n" for line in kept))
    known_hosts.cache_clear()


def _kind(key: bytes) -> str:
    """Return the kind of a key, which is the first string of its wire form."""
    return key[4 : 4 + int.from_bytes(key[:4], "big")].decode("ascii")


def _without(line: str, names: Collection[str]) -> str | None:
    """Return `line` without `names`; None if no name is left."""
    fields = line.split(None, 1)
    if len(fields) < 2 or line.lstrip().startswith(("#", "@")):
        return line
    if fields[0].startswith("|"):
        entries = KnownHosts()
        entries.add(line)
        return None if any(entries.entries_named(name) for name in names) else line
    left = [other for other in fields[0].split(",") if other.lower() not in names]
    if len(left) == len(fields[0].split(",")):
        return line
    return f"{','.join(left)} {fields[1]}" if left else None


def _lines(path: Path) -> list[str]:
    return [line for line in map(str.strip, _text(path).splitlines()) if line and not line.startswith("#")]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""


def _matches(patterns: Sequence[str], name: str) -> bool:
    """OpenSSH's pattern lists: `*` and `?`, and a `!` that matches refuses the whole line."""
    hit = False
    for word in patterns:
        if fnmatch.fnmatchcase(name, word.removeprefix("!").replace("[", "[[]")):
            if word.startswith("!"):
                return False
            hit = True
    return hit
