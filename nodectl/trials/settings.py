"""The tuning of a host as Ansible's variables: the profile that a trial puts on, and overrides of a host's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.profiles.overrides import OVERRIDES, checked_overrides, merge_fields

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
