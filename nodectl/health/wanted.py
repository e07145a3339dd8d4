"""What each host should be: its profiles, from its inventory variables or as the operator names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodectl.checks.judge import no_profile, warned
from nodectl.errors import ProfileError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.resolve import Resolved, load_profile, resolve, without_stack

KINDS = ("hardware", "stack", "tuning")
# what a host's variables may leave out, as in playbooks/tasks/fleet.yml
_DEFAULTS = {"hardware": "unknown", "tuning": "stock"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a host should be, or why that is not known; and what must be told about it."""

    resolved: Resolved | None
    findings: tuple[Finding, ...] = ()


def wanted_of(host: Host, names: Mapping[str, str], extra_dirs: Sequence[Path]) -> Wanted:
    """The host's profiles, merged and validated as for Ansible; `names` go before the host's own variables."""
    chosen = {kind: names.get(kind) or host.variables.get(f"nodectl_{kind}") for kind in KINDS}
    if not chosen["stack"] and not (chosen["hardware"] or chosen["tuning"]):
        return Wanted(None, (_no_stack(host.name),))
    try:
        if not chosen["stack"]:
            partial = without_stack(
                *(str(chosen[kind] or _DEFAULTS[kind]) for kind in ("hardware", "tuning")),
                overrides=_overrides(host.variables),
                extra_dirs=tuple(extra_dirs),
            )
            return Wanted(partial, (_no_stack(host.name),))
        resolved = _resolved(
            tuple(str(chosen[kind] or _DEFAULTS[kind]) for kind in KINDS),
            json.dumps(_overrides(host.variables)),
            json.dumps(_plain(host.variables.get("nodectl_allow_unsupported") or [])),
            tuple(extra_dirs),
        )
    except ProfileError as error:
        impossible = isinstance(error, IncompatibleError)
        return Wanted(None, (no_profile(host.name, error.message, error.remedy, impossible=impossible),))
    return Wanted(resolved, tuple(warned(host.name, n, text) for n, text in enumerate(resolved.warnings, 1)))


def check_names(names: Mapping[str, str], extra_dirs: Sequence[Path]) -> None:
    """ProfileError for a name that no profile has: what an operator types is refused, not a finding of each host."""
    for kind, name in names.items():
        load_profile(kind, name, extra_dirs)


def _no_stack(host: str) -> Finding:
    remedy = "set nodectl_stack in the inventory, or give --stack"
    return no_profile(host, "nodectl_stack is not set", remedy, impossible=False)


@lru_cache(maxsize=256)
def _resolved(names: tuple[str, ...], overrides: str, allowed: str, extra_dirs: tuple[Path, ...]) -> Resolved:
    # most hosts of a fleet want the same; the texts make what a variable holds comparable
    return resolve(
        *names, overrides=json.loads(overrides), extra_dirs=extra_dirs, allow_unsupported=json.loads(allowed)
    )


def _overrides(variables: Mapping[str, Any]) -> dict[str, Any]:
    overrides = dict(_plain(variables.get("nodectl_overrides") or {}))
    nccl = _plain(variables.get("nodectl_nccl_env") or {})
    return {**overrides, "nccl": {**overrides.get("nccl", {}), **nccl}} if nccl else overrides


def _plain(value: object) -> Any:
    """Through JSON: plain text and numbers, without Ansible's tags."""
    return json.loads(json.dumps(value))
