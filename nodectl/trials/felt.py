"""Settings of a candidate that the measurements of a trial can feel: of the others its verdict says nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodectl.model.trial import OWN
from nodectl.probes.registry import declarations
from nodectl.profiles import SETTINGS
from nodectl.profiles.resolve import load_profile

# what gloo measures says nothing of NCCL's variables
_NCCL = "nccl"

# (group, key), such as ("sysctl", "net.core.rmem_max")
Setting = tuple[str, str]


def settings_of(profile: str, folders: Sequence[Path] = ()) -> dict[Setting, Any]:
    """Return what a profile sets; nothing for `own`."""
    if profile == OWN:
        return {}
    document = load_profile("tuning", profile, folders).model_dump(exclude_unset=True, mode="json")
    settings: dict[Setting, Any] = {}
    for group in SETTINGS:
        for key, value in (document.get(group) or {}).items():
            if isinstance(value, Mapping):
                # where it came from is no part of its value
                value = {name: part for name, part in value.items() if name != "origin" and part is not None}
            settings[group, key] = value
    return settings


def tried(baseline: str, candidate: str, folders: Sequence[Path] = ()) -> dict[Setting, Any]:
    """Return what the candidate sets otherwise than the baseline; None if it leaves alone what the baseline sets."""
    before, after = settings_of(baseline, folders), settings_of(candidate, folders)
    changed = {setting: value for setting, value in after.items() if before.get(setting) != value}
    return {**changed, **{setting: None for setting in before if setting not in after}}


def unfelt(settings: Iterable[Setting], probes: Iterable[str], backends: Collection[object]) -> list[Setting]:
    """Return the settings that no probe feels; NCCL's only where something was measured with NCCL as its backend."""
    probes_by_name = declarations()
    feels = {part for probe in probes if probe in probes_by_name for part in probes_by_name[probe].feels}
    if _NCCL not in backends:
        feels.discard(_NCCL)
    # `sysctl` is all of them, `sysctl.net` those whose names begin with `net.`
    starts = tuple(f"{part}." for part in feels)
    return [setting for setting in settings if not f"{'.'.join(setting)}.".startswith(starts)]


def named(settings: Iterable[Setting]) -> str:
    """Return the settings by the names that an operator knows."""
    return ", ".join(key if group in ("sysctl", _NCCL) else f"{group} {key}" for group, key in settings)


def as_overrides(settings: Mapping[Setting, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings as `nodectl_overrides` has them."""
    overrides: dict[str, dict[str, Any]] = {}
    for (group, key), value in settings.items():
        overrides.setdefault(group, {})[key] = value
    return overrides
