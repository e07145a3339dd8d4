"""A fleet's recordings, gathered and written: hosts that answer are saved, the others are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.facts.catalogue import commands_for, facts_for
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.profiles import KINDS
from nodectl.profiles.load import find_profiles
from nodectl.profiles.resolve import base_tuning, load_profile
from nodectl.profiles.tuning_schema import Tuning
from nodectl.recordings.folder import folder_name
from nodectl.recordings.mask import Masker
from nodectl.recordings.source import ReplaySource, Source
from nodectl.recordings.write import prepare, write_host


@dataclass(frozen=True, slots=True)
class Saved:
    """Folder by host, as the recording calls it; why there is none by host; what was replayed, if anything."""

    folders: dict[str, str]
    failed: dict[str, str]
    source: str | None


def save(source: Source, folder: Path, profile_dirs: Sequence[Path], *, mask: bool) -> Saved:
    """Write each host's recording into `folder` as it comes."""
    if isinstance(source, ReplaySource):
        source = replace(source, whole=True)
    masker = Masker([host.name for host in source.hosts], users=_users(source.hosts)) if mask else None
    shown = {host.name: masker.name_of(host.name) if masker else host.name for host in source.hosts}
    prepare(folder, {shown[host.name]: _profiles(host) for host in source.hosts}, masked=mask)
    keys = sysctl_keys(profile_dirs)
    folders: dict[str, str] = {}
    failed: dict[str, str] = {}
    for host, found in source.recordings(lambda host: everything(host, keys)):
        if not isinstance(found, Recording):
            failed[host.name] = "; try: ".join(filter(None, [found.error or str(found.outcome), found.remedy]))
            continue
        try:
            write_host(folder, masker.masked(found) if masker else found)
        except OSError as error:
            failed[host.name] = f"not saved: {error}"
        else:
            folders[shown[host.name]] = folder_name(shown[host.name])
    return Saved(folders, failed, source.recorded)


def everything(host: Host, keys: Sequence[str]) -> tuple[Command, ...]:
    """All that any reading command would ask of the host."""
    return commands_for(host, facts_for(keys))


def sysctl_keys(profile_dirs: Sequence[Path]) -> tuple[str, ...]:
    """The kernel settings that any tuning names: which one a recording will be held against is not known yet."""
    keys = dict.fromkeys(base_tuning().sysctl)
    for name in find_profiles("tuning", profile_dirs):
        profile = load_profile("tuning", name, profile_dirs)
        if isinstance(profile, Tuning):
            keys |= dict.fromkeys(profile.sysctl)
    return tuple(keys)


def _profiles(host: Host) -> dict[str, str]:
    named = {kind: host.variables.get(f"nodectl_{kind}") for kind in KINDS}
    return {kind: str(name) for kind, name in named.items() if name}


def _users(hosts: Sequence[Host]) -> frozenset[str]:
    return frozenset(host.user for host in hosts if host.user)
