"""A recording written to a folder: each host whole or not at all, readable by its owner only."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from nodectl.errors import UsageError
from nodectl.model.recording import Entry, Recording
from nodectl.profiles import KINDS
from nodectl.recordings.fleet import ABOUT, SCHEMA, open_recording, read_about
from nodectl.recordings.folder import CLOCK, ERR, INDEX, OUT, folder_name

_DRAFT = ".draft-"
_CLOCK_ARGV = ("date", "+%s.%N")


def prepare(path: Path, profiles: Mapping[str, Mapping[str, str]], *, masked: bool = False) -> None:
    """Make the folder, or take one that holds a recording already; `profiles` are the hosts' profile names.

    UsageError where it is something else, or where masked and plain hosts would come to lie side by side.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [each.name for each in path.iterdir()]
    about = read_about(path) if names else {}
    if names and not about:
        raise UsageError(f"{path} is not empty, and no recording", "give a new folder")
    if about and (masked or about.get("masked")):
        raise UsageError(f"{path} holds a recording, and pseudonyms are made anew each time", "give a new folder")
    for name in names:
        if name.startswith(_DRAFT):  # of a run that was killed
            shutil.rmtree(path / name)
    held = any((path / name).is_dir() for name in names if not name.startswith("."))
    earlier = open_recording(str(path)) if held else None
    hosts = {host: earlier.profiles_of(host) for host in earlier.hosts} if earlier else {}
    hosts |= {host: dict(own) for host, own in profiles.items()}
    _replace(path / ABOUT, yaml.safe_dump(_about(path.resolve().name, hosts, masked=masked), sort_keys=False))


def _about(name: str, hosts: Mapping[str, Mapping[str, str]], *, masked: bool) -> dict[str, Any]:
    """What all hosts have in common stands once."""
    every = [dict(own) for own in hosts.values()]
    common = {
        kind: every[0][kind]
        for kind in KINDS
        if every and kind in every[0] and all(own.get(kind) == every[0][kind] for own in every)
    }
    own = {host: {k: v for k, v in names.items() if common.get(k) != v} for host, names in hosts.items()}
    about: dict[str, Any] = {"schema": SCHEMA, "name": name, "made": "recorded"}
    about |= {"masked": True} if masked else {}
    about |= {**common, "hosts": {host: rest for host, rest in own.items() if rest}}
    plain: dict[str, Any] = json.loads(json.dumps(about))  # without the tags that Ansible gives its texts
    return plain


def write_host(path: Path, recording: Recording) -> None:
    """Write the host's folder below `path`, in the place of an earlier one; OSError where that is not possible."""
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=path))
    try:
        for entry in recording.entries.values():
            _write(draft / f"{entry.key}{OUT}", entry.stdout)
            if entry.stderr:
                _write(draft / f"{entry.key}{ERR}", entry.stderr)
        _write(draft / INDEX, json.dumps(_index(recording, draft), indent=1) + "\n")
        _exchange(draft, path / folder_name(recording.host))
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _index(recording: Recording, draft: Path) -> list[dict[str, Any]]:
    stamp = _stamp(recording.time)
    rows = [_row(entry, stamp) for entry in recording.entries.values()]
    if recording.clock_offset_s is not None and recording.clock_error_s is not None:
        clock = {"offset_s": round(recording.clock_offset_s, 6), "error_s": round(recording.clock_error_s, 6)}
        _write(draft / f"{CLOCK}{OUT}", json.dumps(clock) + "\n")
        rows.append(_row(Entry(CLOCK, _CLOCK_ARGV, 0, "", "", recording.clock_error_s), stamp))
    return rows


def _row(entry: Entry, stamp: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": entry.key,
        "argv": list(entry.argv),
        "exit_status": entry.exit_status,
        "duration_s": round(entry.duration_s, 3),
        "time": stamp,
    }
    return {**row, "cut": True} if entry.cut else row


def _stamp(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", errors="surrogatepass"))


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f"{_DRAFT}{path.name}")
    draft.unlink(missing_ok=True)
    _write(draft, text)
    draft.replace(path)


def _exchange(draft: Path, target: Path) -> None:
    """A reader sees the old folder, the new one, or for a moment none; never a mixture."""
    if not os.path.lexists(target):
        draft.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
    target.rename(old / "old")
    draft.rename(target)
    shutil.rmtree(old)
