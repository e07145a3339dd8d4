"""A recording's folder and its hosts, read with care: nothing outside of it is read, and never more than fits."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import yaml

from nodectl.common import bounded_json, bounded_yaml
from nodectl.common.files import folder_name
from nodectl.common.natural import natural
from nodectl.common.resources import recordings_dir
from nodectl.common.spelling import meant
from nodectl.errors import ParseError, UsageError
from nodectl.model.recording import SITE, Entry, Recording
from nodectl.profiles import KINDS
from nodectl.recordings.collect import CAP_BYTES, TOTAL_BYTES, as_text

INDEX, OUT, ERR, CLOCK = "index.json", ".out", ".err", "clock"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_END_OF_TIME = 2**40
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def host_name(folder: str) -> str:
    """Return the host whose folder is called so; the folder's own name if it is not one of ours."""
    try:
        plain = unquote(folder, errors="strict")
        name = plain if folder_name(plain) == folder else folder
        name.encode()
        return name
    except UnicodeError:  # bytes that are no text, quoted or not
        return os.fsencode(folder).decode("utf-8", errors="replace")


class _Row(NamedTuple):
    """An entry of the index: all but the texts, and when it was taken."""

    argv: tuple[str, ...] = ()
    exit_status: int | None = 0
    duration_s: float = 0.0
    cut: bool = False
    time: float | None = None


_Index = Mapping[str, _Row]
_UNINDEXED = _Row()


@dataclass(slots=True)
class _Opened:
    """A host's folder, open: a link put in its place later leads nowhere; and how much may still be read of it.

    `names` are those of its files and folders: what is not among them is not tried.
    """

    descriptor: int
    names: Collection[str]
    left_bytes: int = TOTAL_BYTES

    def read(self, name: str) -> tuple[bytes, bool] | None:
        """(content up to the cap, whether it was cut); None for what is not there or no plain file."""
        if name not in self.names:
            return None
        try:
            file = os.open(name, _FLAGS, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            limit = min(CAP_BYTES, self.left_bytes)
            content = _content(file, limit)
        finally:
            os.close(file)
        if content is None:
            return None
        self.left_bytes -= min(len(content), limit)
        return content[:limit], len(content) > limit


def _content(file: int, limit: int) -> bytes | None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return None
    # room for what is there, and not for the limit: sixteen megabytes a file are dear
    content = os.read(file, min(status.st_size, limit) + 1)
    while len(content) <= limit and len(content) != status.st_size and (more := os.read(file, limit + 1)):
        content += more
    return content


def read_host(path: Path, host: str, recorded: str, keys: Collection[str] | None = None) -> Recording:
    """Return a host's recording: these keys and the site's own checks, or all; ParseError if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = "is a link" if path.is_symlink() else error.strerror
        raise ParseError(f"{path}: {why}", "a host's recording is a folder of its own, and no link") from error
    try:
        with os.scandir(descriptor) as files:
            folder = _Opened(descriptor, {file.name for file in files})
        index = _index(folder, path)
        named = {name.removesuffix(OUT) for name in folder.names if name.endswith(OUT)} | set(index)
        all_keys = sorted(key for key in named if _KEY.fullmatch(key) and key != CLOCK)
        wanted = all_keys if keys is None else {*keys, *(key for key in all_keys if key.startswith(SITE))}
        entries = {key: entry for key in wanted if (entry := _entry(folder, key, index)) is not None}
        offset_s, error_s = _clock(folder)
    finally:
        os.close(descriptor)
    times = [row.time for row in index.values() if row.time is not None]
    return Recording(host, entries, offset_s, error_s, recorded, min(times, default=None))


def _entry(folder: _Opened, key: str, index: _Index) -> Entry | None:
    out = folder.read(f"{key}{OUT}")
    row = index.get(key, _UNINDEXED)
    if out is None and row.exit_status == 0:
        return None  # what it printed is not there: that is not nothing
    content, cut = out or (b"", False)
    err, _ = folder.read(f"{key}{ERR}") or (b"", False)
    cut = cut or row.cut
    status = None if cut else row.exit_status
    return Entry(key, row.argv, status, as_text(content), as_text(err), row.duration_s, cut=cut, recorded=True)


def _clock(folder: _Opened) -> tuple[float | None, float | None]:
    file = folder.read(f"{CLOCK}{OUT}")
    try:
        clock = bounded_json.loads(file[0]) if file else {}
        offset_s, error_s = float(clock["offset_s"]), float(clock["error_s"])
        return (offset_s, error_s) if math.isfinite(offset_s) and math.isfinite(error_s) else (None, None)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None, None


def _index(folder: _Opened, path: Path) -> _Index:
    file = folder.read(INDEX)
    if file is None:
        return {}
    try:
        rows = bounded_json.loads(file[0])
        return {row["key"]: _indexed(row) for row in rows if _KEY.fullmatch(row["key"])}
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ParseError(
            f"{path / INDEX}: {str(error)[:200]}", "it is a list of {key, argv, exit_status, duration_s, time}"
        ) from error


def _indexed(row: Mapping[str, Any]) -> _Row:
    key, status, argv = row["key"], row.get("exit_status", 0), row.get("argv") or []
    if not (status is None or isinstance(status, int)) or isinstance(status, bool):
        raise ValueError(f"exit_status of {key}: {status!r}")
    if not isinstance(argv, list):
        raise ValueError(f"argv of {key}: {argv!r}")
    duration_s, stamp = float(row.get("duration_s") or 0.0), row.get("time")
    time = datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else stamp
    if not 0 <= duration_s < math.inf:
        raise ValueError(f"duration_s of {key}: {duration_s}")
    if not 0 <= (time or 0.0) < _END_OF_TIME:
        raise ValueError(f"time of {key}: {time}")
    cut = bool(row.get("cut")) or status is None
    return _Row(tuple(map(str, argv)), status, duration_s, cut, time)


# A recording of one or more hosts: what it says of itself, which hosts it holds, and the bundled ones.

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
    """Return the recordings that nodectl ships, by name."""
    return {path.parent.name: path.parent for path in sorted(recordings_dir().glob(f"*/{ABOUT}"))}


def open_recording(given: str) -> RecordedFleet:
    """Return the recording in that folder, or the bundled one of that name; UsageError if there is neither."""
    path = Path(given).expanduser()
    if not path.is_dir():
        recordings = bundled()
        if given not in recordings:
            remedy = f"{meant(given, recordings)}give a folder, or one of: {', '.join(recordings) or 'none'}"
            raise UsageError(f"there is no recording at {path}", remedy)
        path = recordings[given]
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
        own_profiles={
            str(host): _profiles(host_profiles) for host, host_profiles in (about.get("hosts") or {}).items()
        },
    )


def read_about(path: Path) -> dict[str, Any]:
    """recording.yml, or nothing if there is none; UsageError if it cannot be read."""
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
    if not isinstance(hosts, dict) or not all(isinstance(host_about, dict) for host_about in hosts.values()):
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
