"""The sides of a trial: profiles by name, or a baseline and the points of a space; what cannot be is refused first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nodectl.articles.programs import CHOSEN
from nodectl.common.nodeset import fold
from nodectl.errors import ProfileError, UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.profiles.host import of_variables
from nodectl.profiles.overrides import NCCL_ENV, OVERRIDES
from nodectl.profiles.resolve import Resolved, load_profile
from nodectl.profiles.schema import Tuning
from nodectl.trials.settings import overrides_for
from nodectl.trials.space import Candidate

# what each host has by itself
OWN = "own"


def sides_of_profiles(names: Sequence[str], baseline: str | None) -> tuple[Side, tuple[Side, ...]]:
    """Return the baseline (the first, unless one is named) and the candidates; a profile may stand against itself."""
    wanted = [name for name in (text.strip() for text in names) if name]
    if not wanted:
        raise UsageError("--profiles names no profile", "give --profiles stock,NAME")
    against = baseline or wanted[0]
    if against in wanted:
        wanted.remove(against)
    if not wanted and baseline is None:
        raise UsageError(
            f"{against} needs a second profile to be compared with", f"give two profiles: --profiles stock,{against}"
        )
    return side_of(against), tuple(side_of(name) for name in dict.fromkeys(wanted or [against]))


def side_of(name: str) -> Side:
    """Return a profile's side; `own` is what each host's inventory says."""
    return Side(name, None if name == OWN else name)


def sides_of_space(candidates: Iterable[Candidate], baseline: Side) -> tuple[Side, ...]:
    """Each candidate as overrides over the baseline's profile."""
    return tuple(
        Side(candidate.label, baseline.profile, candidate.overrides, candidate.run_with) for candidate in candidates
    )


def refuse_impossible(side: Side, hosts: Sequence[Host], folders: Sequence[Path]) -> None:
    """Raise ProfileError where a host cannot have this side: its profile is missing, malformed or incompatible.

    Also where the host's `nodectl_nccl_env` would win over what the side's overrides try.
    """
    for host in hosts:
        try:
            resolved = resolved_as(side, host, folders, pins=host.variables.get(NCCL_ENV))
            # as playbooks/tasks/resolve.yml has it
            has_gpus = resolved.stack.cuda or (resolved.stack.torch is None and resolved.hardware.gpus)
            if (side.overrides or {}).get("gpu") and not has_gpus:
                raise ProfileError("settings of GPUs are set on hosts with a CUDA stack", "take `gpu` out of the space")
            tried = (side.overrides or {}).get("nccl", {})
            pinned = [name for name in _pinned(side, host, folders) if name in tried]
            if pinned:
                reason = f"{', '.join(pinned)} cannot be tried: {NCCL_ENV} sets it there, and goes before a trial"
                raise ProfileError(reason, f"take it out of {NCCL_ENV} for the trial, or out of what is tried")
        except ProfileError as error:
            raise ProfileError(f"{side.label} on {host.name}: {error.message}", error.remedy) from error


def overruled(side: Side, hosts: Sequence[Host], folders: Sequence[Path]) -> list[str]:
    """Lines on variables of NCCL that the side's profile sets and a host's `nodectl_nccl_env` sets otherwise."""
    names: dict[str, list[str]] = {}
    for host in hosts:
        for name in _pinned(side, host, folders):
            names.setdefault(name, []).append(host.name)
    return [
        f"{side.label}: {name} is not tried on {fold(pinning)}: {NCCL_ENV} sets it there, and goes before a profile"
        for name, pinning in sorted(names.items())
    ]


def kernel_keys(side: Side, hosts: Sequence[Host], folders: Sequence[Path]) -> frozenset[str]:
    """Return the kernel settings that the side sets on any of the hosts."""
    return frozenset(
        key for host in hosts for key in resolved_as(side, host, folders, host.variables.get(NCCL_ENV)).tuning.sysctl
    )


def _pinned(side: Side, host: Host, folders: Sequence[Path]) -> list[str]:
    """Variables of NCCL whose value in force on the host is that of its `nodectl_nccl_env`, and not the side's."""
    pins: Any = host.variables.get(NCCL_ENV) or {}
    profile = load_profile("tuning", side.profile, folders) if pins and side.profile else None
    of_profile = profile.nccl if isinstance(profile, Tuning) else ()
    set_here = {*(side.overrides or {}).get("nccl", {}), *of_profile} & {*pins}
    if not set_here:
        return []
    tried = resolved_as(side, host, folders, pins={}).nccl_env
    in_force = resolved_as(side, host, folders, pins=pins).nccl_env
    return sorted(name for name in set_here if tried.get(name) != in_force.get(name))


def resolved_as(side: Side, host: Host, folders: Sequence[Path], pins: Any) -> Resolved:
    """Return what the host would be with the side's settings, and with `pins` as its `nodectl_nccl_env`."""
    variables = {**host.variables, OVERRIDES: overrides_for(host, side.overrides or {}), NCCL_ENV: pins}
    return of_variables(variables, names={"tuning": side.profile} if side.profile else {}, extra_dirs=folders)


def possible(sides: Sequence[Side], hosts: Sequence[Host], folders: Sequence[Path]) -> tuple[list[Side], list[str]]:
    """Return the sides of a space that the hosts can have, and why the others were left out."""
    kept, reasons = [], []
    for side in sides:
        try:
            refuse_impossible(side, hosts, folders)
        except ProfileError as error:
            reasons.append(error.message)
        else:
            kept.append(side)
    if not kept:
        why = reasons[0] if reasons else "it holds none that changes anything"
        raise ProfileError(f"no candidate of the space is possible: {why}", "correct the space")
    return kept, reasons


def varied_by(sides: Iterable[Side]) -> frozenset[str]:
    """Return the conditions of measurements that these sides change themselves."""
    by = {name for side in sides for name in side.run_with}
    of_training = CHOSEN if any(name.startswith("--") for name in by) else ()
    return frozenset({*({"interfaces"} & {f"{name}s" for name in by}), *of_training})
