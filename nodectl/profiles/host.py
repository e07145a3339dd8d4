"""The one way from a host's variables to what it should be: for health, tune, probes, launch and Ansible's lookup."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodectl.common.bounded_json import plain_value
from nodectl.profiles import KINDS
from nodectl.profiles.overrides import ALLOW, MISFIT, NCCL_ENV, OVERRIDES, checked_nccl_env, checked_overrides
from nodectl.profiles.resolve import Resolved, load_profile, merge, resolve
from nodectl.profiles.role_values import role_values

if TYPE_CHECKING:
    from nodectl.model.host import Host
    from nodectl.profiles.compat import Problem
    from nodectl.profiles.host_compat import HostLook
    from nodectl.profiles.schema import Hardware

# the hardware of which nothing is expected, not even what its GPUs are known for
WITHOUT_REFERENCE = "unknown"
# what stands for a name that a host's variables leave out; no stack has that name, and the refusal says why
DEFAULTS = {"hardware": "auto", "stack": "(nodectl_stack is not set)", "tuning": "stock"}


def of_host(host: Host, *, names: Mapping[str, str] | None = None, extra_dirs: Sequence[Path] = ()) -> Resolved | None:
    """Return what the host should be.

    None if neither its variables nor `names`, which win over them, name a profile.

    Without a stack no version is expected of it. ProfileError for an unknown name and malformed variables, its child
    IncompatibleError for profiles that cannot work together.
    """
    chosen = _names(host.variables, names)
    if chosen["stack"]:
        return of_variables(host.variables, names=names, extra_dirs=extra_dirs)
    if not any(chosen.values()):
        return None
    chosen = {kind: chosen[kind] or DEFAULTS[kind] for kind in ("hardware", "tuning")}
    return merge(chosen, **own_values(host.variables), extra_dirs=tuple(extra_dirs))


def of_variables(
    variables: Mapping[str, Any],
    *,
    names: Mapping[str, str] | None = None,
    extra_dirs: Sequence[Path] = (),
    look: HostLook | None = None,
) -> Resolved:
    """Resolve as `of_host` does, where a stack is needed: to be installed, or tried.

    `look` is what was found on the host.
    """
    chosen = _names(variables, names)
    hardware, stack, tuning = (chosen[kind] or DEFAULTS[kind] for kind in KINDS)
    allowed, misfit = plain_value(variables.get(ALLOW) or []), plain_value(variables.get(MISFIT))
    given = {**own_values(variables), "allow_unsupported": allowed, "misfit": misfit}
    if look is None:
        return _resolved((hardware, stack, tuning), json.dumps(given), tuple(extra_dirs))
    resolved = resolve(hardware, stack, tuning, **given, extra_dirs=extra_dirs, look=look)
    return replace(resolved, refusals=tuple(_with_fit(problem, look, extra_dirs) for problem in resolved.refusals))


def _with_fit(problem: Problem, look: HostLook, extra_dirs: Sequence[Path]) -> Problem:
    if not problem.misfit:
        return problem
    from nodectl.profiles.fit import fitting

    hardware, stack = fitting(look, extra_dirs)
    names = " or ".join(hardware) or f"{DEFAULTS['hardware']}"
    choice = f"hardware {names}" + (f" with stack {stack}" if stack else "")
    return replace(problem, nearest=f"{choice}; or, where it is meant, {MISFIT}: allow")


def _names(variables: Mapping[str, Any], names: Mapping[str, str] | None) -> dict[str, str]:
    return {kind: str((names or {}).get(kind) or variables.get(f"nodectl_{kind}") or "") for kind in KINDS}


def hardware_of(host: Host, extra_dirs: Sequence[Path] = ()) -> Hardware:
    """Return the host's hardware alone, with its overrides. ProfileError as `of_host`.

    For who measures: what a tuning or a stack says plays no part in what hardware reaches.
    """
    name = hardware_name(host)
    given = host.variables.get(OVERRIDES)
    hardware = given.get("hardware") if isinstance(given, Mapping) else None
    overrides = json.dumps({"hardware": hardware} if hardware else {}, sort_keys=True, default=str)
    return _hardware(name, overrides, tuple(extra_dirs))


def hardware_name(host: Host) -> str:
    """Return the name of the host's hardware profile, `auto` where the inventory names none."""
    return str(host.variables.get("nodectl_hardware") or DEFAULTS["hardware"])


def check_names(names: Mapping[str, str], extra_dirs: Sequence[Path]) -> None:
    """Raise ProfileError for a name that no profile has: a typing error is refused at once, not found on each host."""
    for kind, name in names.items():
        load_profile(kind, name, extra_dirs)


def own_values(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a host's variables say over its profiles, as `resolve` takes it.

    ProfileError if one is malformed.
    """
    overrides, nccl_env = (plain_value(variables.get(name) or {}) for name in (OVERRIDES, NCCL_ENV))
    return {
        "overrides": checked_overrides(overrides),
        "nccl_env": checked_nccl_env(nccl_env),
        "roles": role_values(variables),
    }


@lru_cache(maxsize=256)
def _resolved(names: tuple[str, str, str], given: str, extra_dirs: tuple[Path, ...]) -> Resolved:
    # most hosts of a fleet want the same; the text makes what their variables hold comparable
    return resolve(*names, extra_dirs=extra_dirs, **json.loads(given))


@lru_cache(maxsize=256)
def _hardware(name: str, overrides: str, extra_dirs: tuple[Path, ...]) -> Hardware:
    names = {"hardware": name, "tuning": DEFAULTS["tuning"]}
    return merge(names, overrides=json.loads(overrides), extra_dirs=extra_dirs).hardware
