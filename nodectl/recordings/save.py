"""A fleet's recordings, gathered and written to a folder: each host whole or not at all, readable by its owner only."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from nodectl.common.files import local_path, replace_file
from nodectl.errors import UsageError
from nodectl.facts.catalogue import commands_for, facts_for
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from nodectl.profiles import KINDS
from nodectl.profiles.load import find_profiles
from nodectl.profiles.resolve import base_tuning, load_profile
from nodectl.profiles.schema import Tuning
from nodectl.recordings.folder import ABOUT, CLOCK, ERR, INDEX, OUT, SCHEMA, open_recording, read_about
from nodectl.recordings.mask import Masker
from nodectl.recordings.source import Answer, CommandsOf, ReplaySource, Source

_DRAFT = ".draft-"
_CLOCK_ARGV = ("date", "+%s.%N")


@dataclass(frozen=True, slots=True)
class Saved:
    """Folder by host, as the recording calls it; why there is none by host; what was replayed, if anything."""

    folders: dict[str, str]
    failed: dict[str, str]
    source: str | None


def save(
    source: Source, folder: Path, profile_dirs: Sequence[Path], *, mask: bool, more: CommandsOf = lambda _: ()
) -> Saved:
    """Write each host's recording into `folder` as it comes; `more` are commands beside those of the facts."""
    if isinstance(source, ReplaySource):
        source = replace(source, whole=True)
    names, users = [host.name for host in source.hosts], {host.user for host in source.hosts if host.user}
    masker = Masker(names, users) if mask else None
    shown = {host.name: masker.name_of(host.name) if masker else host.name for host in source.hosts}
    prepare(folder, {shown[host.name]: _profiles(host, masked=mask) for host in source.hosts}, masked=mask)
    folders: dict[str, str] = {}
    failed: dict[str, str] = {}
    facts = facts_for(sysctl_keys(profile_dirs))
    answers: Iterable[tuple[Host, Answer]] = source.recordings(lambda host: (*commands_for(host, facts), *more(host)))
    if masker:
        answers = list(answers)  # what is known from the last one goes from the first one, too
        for _, answer in answers:
            if isinstance(answer, Recording):
                masker.learn(answer)
    for host, answer in answers:
        if not isinstance(answer, Recording):
            failed[host.name] = "; try: ".join(filter(None, [answer.error or str(answer.outcome), answer.remedy]))
            continue
        try:
            write_host(folder, masker.masked(answer) if masker else answer)
        except OSError as error:
            failed[host.name] = f"not saved: {error}"
        else:
            folders[shown[host.name]] = local_path(folder, shown[host.name]).name
    return Saved(folders, failed, source.recorded)


def sysctl_keys(profile_dirs: Sequence[Path]) -> tuple[str, ...]:
    """Return the settings that any tuning names: which one a recording will be held against is not known yet."""
    keys = dict.fromkeys(base_tuning().sysctl)
    for name in find_profiles("tuning", profile_dirs):
        profile = load_profile("tuning", name, profile_dirs)
        if isinstance(profile, Tuning):
            keys |= dict.fromkeys(profile.sysctl)
    return tuple(keys)


def _profiles(host: Host, *, masked: bool) -> dict[str, str]:
    """Return the names of its profiles; where masked, of those that nodectl ships: a site's own says whose it is."""
    named = {kind: host.variables.get(f"nodectl_{kind}") for kind in KINDS}
    return {
        kind: str(name) for kind, name in named.items() if name and not (masked and name not in find_profiles(kind))
    }


def prepare(path: Path, profiles: Mapping[str, Mapping[str, str]], *, masked: bool = False) -> None:
    """Make the folder, or take one that holds a recording; UsageError for another, or if masked and plain would mix."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [child.name for child in path.iterdir()]
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
    hosts |= {host: dict(host_profiles) for host, host_profiles in profiles.items()}
    document: dict[str, Any] = {"schema": SCHEMA, "name": path.resolve().name, "made": "recorded"}
    document |= {"masked": True} if masked else {}
    document["hosts"] = {host: dict(named) for host, named in hosts.items() if named}
    plain = json.loads(json.dumps(document))  # without the tags that Ansible gives its texts
    replace_file(path / ABOUT, yaml.safe_dump(plain, sort_keys=False))


def write_host(path: Path, recording: Recording) -> None:
    """Write the host's folder below `path`, in the place of an earlier one; OSError if that is not possible."""
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=path))
    try:
        for entry in recording.entries.values():
            _write(local_path(draft, f"{entry.key}{OUT}"), entry.stdout)
            if entry.stderr:
                _write(local_path(draft, f"{entry.key}{ERR}"), entry.stderr)
        _write(draft / INDEX, json.dumps(_index(recording, draft), indent=1) + "\n")
        _exchange(draft, local_path(path, recording.host))
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _index(recording: Recording, draft: Path) -> list[dict[str, Any]]:
    time = recording.time
    stamp = None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
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


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", errors="surrogatepass"))


def _exchange(draft: Path, target: Path) -> None:
    """Put the draft in the target's place; a reader sees the old folder, the new one, or for a moment none."""
    if not os.path.lexists(target):
        draft.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
    target.rename(old / "old")
    draft.rename(target)
    shutil.rmtree(old)
