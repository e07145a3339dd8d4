"""A recording of one or more hosts: what it says of itself, which hosts it holds, and the bundled ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nodectl.common import bounded_yaml
from nodectl.common.natural import natural
from nodectl.common.resources import recordings_dir
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.profiles import KINDS
from nodectl.recordings.folder import INDEX, OUT, host_name

ABOUT = "recording.yml"
SCHEMA = "nodectl.recording/1"
# the fleet's own, beside its hosts
PROFILES = "profiles"
_ABOUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordedFleet:
    """Hold where the hosts' folders lie, by host name; `profiles` are those of hosts that are not in `own_profiles`."""

    path: Path
    name: str
    hosts: Mapping[str, Path]
    made: str = ""
    masked: bool = False
    profiles: Mapping[str, str] = field(default_factory=dict)
    own_profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def profiles_of(self, host: str) -> dict[str, str]:
        """{hardware: name, …} as far as the recording says."""
        return {**self.profiles, **self.own_profiles.get(host, {})}


def bundled() -> dict[str, Path]:
    """The recordings that nodectl ships, by name."""
    return {path.parent.name: path.parent for path in sorted(recordings_dir().glob(f"*/{ABOUT}"))}


def open_recording(given: str) -> RecordedFleet:
    """The recording in that folder, or the bundled one of that name; UsageError where there is neither."""
    path = Path(given).expanduser()
    if not path.is_dir():
        known = bundled()
        if given not in known:
            remedy = f"{meant(given, known)}give a folder, or one of: {', '.join(known) or 'none'}"
            raise UsageError(f"there is no recording at {path}", remedy)
        path = known[given]
    path = path.resolve()
    about = read_about(path)
    hosts = _hosts(path)
    if not hosts:
        raise UsageError(f"{path} holds no recording", "it needs a folder a host, with files KEY.out")
    return RecordedFleet(
        path=path,
        name=str(about.get("name") or path.name),
        hosts=hosts,
        made=str(about.get("made") or ""),
        masked=bool(about.get("masked")),
        profiles=_profiles(about),
        own_profiles={str(host): _profiles(own) for host, own in (about.get("hosts") or {}).items()},
    )


def read_about(path: Path) -> dict[str, Any]:
    """recording.yml, or nothing where there is none; UsageError where it cannot be read."""
    file = path / ABOUT
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            about = bounded_yaml.load(stream.read(_ABOUT_BYTES + 1))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{file}: {str(error)[:200]}", "correct it, or take it away") from error
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise UsageError(f"{file}: not of the schema {SCHEMA}", "correct it, or take it away")
    hosts = about.get("hosts") or {}
    if not isinstance(hosts, dict) or not all(isinstance(own, dict) for own in hosts.values()):
        raise UsageError(f"{file}: hosts: must be a mapping of mappings", "correct it")
    return about


def _profiles(about: Mapping[str, Any]) -> dict[str, str]:
    return {kind: str(about[kind]) for kind in KINDS if isinstance(about.get(kind), str)}


def _hosts(path: Path) -> dict[str, Path]:
    """In natural order. A folder that holds a host's files is that one host."""
    try:
        names = sorted((entry.name for entry in os.scandir(path)), key=natural)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "make it readable to you") from error
    if any(name == INDEX or name.endswith(OUT) for name in names):
        return {host_name(path.name): path}
    folders = [name for name in names if not name.startswith(".") and (path / name).is_dir()]
    if PROFILES in folders and not _holds_files(path / PROFILES):
        folders.remove(PROFILES)
    return {host_name(name): path / name for name in folders}


def _holds_files(folder: Path) -> bool:
    try:
        return any(entry.name == INDEX or entry.name.endswith(OUT) for entry in os.scandir(folder))
    except OSError:
        return True  # let it be told why it cannot be read
