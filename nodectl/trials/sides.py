"""The tuning profiles of a trial, the first as the baseline: what a host cannot have, and Ansible's variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodectl.common.resources import node_module
from nodectl.errors import ProfileError, UsageError
from nodectl.model.host import Host
from nodectl.model.trial import OWN
from nodectl.profiles.host import of_variables
from nodectl.profiles.overrides import OVERRIDES, checked_overrides, merge_fields
from nodectl.profiles.resolve import Resolved

# they wait for a reset of the GPU
_NOT_LIVE = ("ecc", "mig")


def sides_of(names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the baseline, which is the first, and the candidates; a profile may stand against itself."""
    baseline, *others = [name for name in (text.strip() for text in names) if name] or [""]
    if not others:
        raise UsageError("--profiles needs a baseline and a candidate", "give two profiles: --profiles stock,NAME")
    if OWN in others:
        raise UsageError(f"{OWN} is no candidate: it is what the inventory says", f"name it first: --profiles {OWN},…")
    return baseline, tuple(dict.fromkeys(others))


def refuse_impossible(profile: str, hosts: Sequence[Host], folders: Sequence[Path]) -> None:
    """Raise ProfileError if a host cannot have this profile: it is missing, malformed or incompatible."""
    for host in hosts:
        try:
            _resolved_as(profile, host, folders)
        except ProfileError as error:
            raise ProfileError(f"{profile} on {host.name}: {error.message}", error.remedy) from error


def refuse_not_live(baseline: str, candidates: Sequence[str], hosts: Sequence[Host], folders: Sequence[Path]) -> None:
    """Raise UsageError if a candidate needs a value that a trial cannot set live, or cannot take back."""
    for host in hosts:
        usual, filed = _resolved_as(baseline, host, folders).tuning.gpu, nccl_environment(OWN, host, folders)
        for name in candidates:
            wanted = _resolved_as(name, host, folders).tuning.gpu
            for field in _NOT_LIVE:
                if getattr(usual, field) != getattr(wanted, field):
                    raise UsageError(
                        f"{name} on {host.name}: gpu {field} needs a reset or a reboot; a trial sets live values only",
                        f"take {field} from the profile, or provision it and compare: `nodectl probe --compare`",
                    )
        for name in (baseline, *candidates):
            for variable in sorted(set(filed) - set(_resolved_as(name, host, folders).nccl_env)):
                known = node_module("nccl_variables").variable(variable)
                if known is None or not re.fullmatch(r"int|\d+\.\.\d*", known.values):
                    raise UsageError(
                        f"{name} on {host.name}: its nccl.conf sets {variable}, which a measurement cannot unset",
                        f"name it in {name}, too, or provision the hosts with {name} first",
                    )


def nccl_environment(profile: str, host: Host, folders: Sequence[Path]) -> Mapping[str, str]:
    """Return NCCL's variables for a measurement with the profile, which go before the host's nccl.conf.

    A number that only the file sets is empty: NCCL then takes its default.
    """
    filed = _resolved_as(OWN, host, folders).nccl_env
    return {**dict.fromkeys(filed, ""), **_resolved_as(profile, host, folders).nccl_env}


def _resolved_as(profile: str, host: Host, folders: Sequence[Path]) -> Resolved:
    names = {} if profile == OWN else {"tuning": profile}
    return of_variables(host.variables, names=names, extra_dirs=folders)


TUNING = "nodectl_tuning"


def own_overrides(host: Host) -> dict[str, Any]:
    """Return what the inventory says of this host alone."""
    present: Any = host.variables.get(OVERRIDES)
    return checked_overrides(present or {})


def merged_overrides(present: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Both in one, because in Ansible one nodectl_overrides replaces another; UsageError for a template."""
    merged = checked_overrides(present)
    merge_fields(merged, checked_overrides(overrides))
    result: dict[str, Any] = plain(merged)
    return result


def plain(value: Any) -> Any:
    """Return the value as YAML's own types; Ansible would take braces for a template and run it."""
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        if any(mark in value for mark in ("{{", "{%", "{#")):
            raise UsageError(f"Ansible would read {value!r} as a template", "write the value itself")
        return str(value)
    # an inventory's numbers carry where they come from, which YAML cannot write
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value
