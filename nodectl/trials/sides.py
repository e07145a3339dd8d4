"""The sides of a trial: profiles by name, or a baseline and the points of a space; what cannot be is refused first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nodectl.errors import ProfileError, UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.profiles.host import of_variables
from nodectl.profiles.overrides import OVERRIDES
from nodectl.trials.arming.settings import overrides_for
from nodectl.trials.space import Candidate

# what each host has by itself
OWN = "own"


def sides_of_profiles(names: Sequence[str], baseline: str | None) -> tuple[Side, tuple[Side, ...]]:
    """The baseline (the first, unless one is named) and the candidates; a profile against itself is a fair question."""
    wanted = [name for name in (text.strip() for text in names) if name]
    if not wanted:
        raise UsageError("no profile is named", "give --profiles stock,NAME")
    against = baseline or wanted[0]
    if against in wanted:
        wanted.remove(against)
    if not wanted and baseline is None:
        raise UsageError(f"{against} has nothing to be tried against", f"give two profiles: --profiles stock,{against}")
    return side_of(against), tuple(side_of(name) for name in dict.fromkeys(wanted or [against]))


def side_of(name: str) -> Side:
    """A profile's side; `own` is what each host's inventory says."""
    return Side(name, None if name == OWN else name)


def sides_of_space(candidates: Iterable[Candidate], baseline: Side) -> tuple[Side, ...]:
    """Each candidate as overrides over the baseline's profile."""
    return tuple(
        Side(candidate.label, baseline.profile, candidate.overrides, candidate.run_with) for candidate in candidates
    )


def refuse_impossible(side: Side, hosts: Sequence[Host], folders: Sequence[Path]) -> None:
    """ProfileError where a host cannot have this side: no such profile, a malformed one, or what cannot be together."""
    for host in hosts:
        tuning = {"tuning": side.profile} if side.profile else {}
        try:
            variables = {**host.variables, OVERRIDES: overrides_for(host, side.overrides or {})}
            of_variables(variables, names=tuning, extra_dirs=folders)
        except ProfileError as error:
            raise ProfileError(f"{side.label} on {host.name}: {error.message}", error.remedy) from error


def possible(sides: Sequence[Side], hosts: Sequence[Host], folders: Sequence[Path]) -> tuple[list[Side], list[str]]:
    """Those of a space that the hosts can have, and why the others were left out."""
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
    """The conditions of measurements that these sides change themselves."""
    return frozenset({"interfaces"} if any("interface" in side.run_with for side in sides) else ())
