"""A setting as Ansible is given it: variables for all hosts, and an inventory of the run's own for what differs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.profiles.overrides import OVERRIDES, checked_overrides, merge_fields

TUNING = "nodectl_tuning"
# a name that no inventory has, so that it matters nowhere where a host's own variables stand
_OWN = "nodectl_trial_overrides"
_LOOKED_UP = "{{ " + _OWN + " }}"


@contextmanager
def given(side: Side, hosts: Sequence[Host]) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """(extra variables, further inventories) for as long as the block lasts.

    Extra variables come before whatever an inventory says anywhere; what differs from host to host they only name.
    """
    variables: dict[str, Any] = {} if side.profile is None else {TUNING: plain(side.profile)}
    if side.overrides is None:
        yield variables, ()
        return
    merged = {str(host.name): {_OWN: overrides_for(host, side.overrides)} for host in hosts}
    with tempfile.TemporaryDirectory(prefix="nodectl-trial-") as folder:  # ours alone, as mkdtemp makes it
        path = Path(folder) / "trial.yml"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            yaml.safe_dump({"all": {"hosts": merged}}, stream, sort_keys=False)
        yield {**variables, OVERRIDES: _LOOKED_UP}, (str(path),)


def overrides_for(host: Host, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the host has of its own, with the side's on top."""
    return merged_overrides(own_overrides(host), overrides)


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
