"""A search space: what may be set to which values, read from YAML and held against the schema of a tuning.

sysctl:
  net.ipv4.tcp_rmem: [null, "4096 131072 16777216"]      # null: as the profile has it
  vm.swappiness: [null, {value: 1, never_lower: true}]  # a value with fields of its own
together:                                                # values that only make sense with each other
  streams:
    - {}
    - nccl: {NCCL_NSOCKS_PERTHREAD: 4, NCCL_SOCKET_NTHREADS: 2}
launch: {rank_order: [null, fabric]}                     # what no host holds: how it is run
probe: {interface: [null, eth1]}
training: {compress: [null, bf16], bucket_view: [null, true]}  # options of the workload that is trained
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.common.spelling import meant
from nodectl.errors import ProfileError
from nodectl.profiles import SETTINGS
from nodectl.profiles.load import Document, check_document, read_document
from nodectl.profiles.overrides import OVERRIDES
from nodectl.profiles.schema import Tuning
from nodectl.workloads.meaning import flag
from nodectl.workloads.settings import TUNABLE

AS_IT_IS = "as it is"
_TOGETHER = "together"
TRAINING = "training"
# what the launcher decides, not a host: group → field → its values, None for any word
RUN_WITH: Mapping[str, Mapping[str, tuple[str, ...] | None]] = {
    "launch": {"rank_order": ("inventory", "fabric")},
    "probe": {"interface": None},
    TRAINING: dict.fromkeys(TUNABLE),
}
_GROUPS = (*SETTINGS, *RUN_WITH)
_FIELDS = (*_GROUPS, _TOGETHER, "description", "allow_debug_variables")
_WHY = "tried by nodectl tune"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an axis: the overrides that set it, none to leave the profile's."""

    label: str
    overrides: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting, or settings that vary together, and the values that are tried."""

    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the space, as `nodectl_overrides` would set it, and how it is run.

    That is `interface`, `rank_order`, and options of the workload by their flags (`--compress`).
    """

    label: str
    overrides: Document
    run_with: Mapping[str, str] = field(default_factory=dict)
    # how many axes it moves
    moved: int = 1

    @property
    def changes(self) -> bool:
        """Return whether it changes anything."""
        return bool(self.overrides or self.run_with)


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of the axes but the one that changes nothing, in a fixed order."""

    axes: tuple[Axis, ...]
    allow_debug_variables: bool = False

    @property
    def combinations(self) -> int:
        """The number of combinations, including the one that changes nothing."""
        return math.prod(len(axis.choices) for axis in self.axes)

    def __iter__(self) -> Iterator[Candidate]:
        for number in range(self.combinations):
            candidate = self.candidate(number)
            if candidate.changes:
                yield candidate

    def sample(self, count: int, seed: int = 0) -> tuple[Candidate, ...]:
        """Return at most `count` different candidates, the same for the same seed.

        A space of millions is not walked.
        """
        if self.combinations <= count + 1:
            return tuple(self)[:count]
        chance = random.Random(seed)  # noqa: S311  # chance, not secrets
        drawn: dict[int, Candidate] = {}
        while len(drawn) < count:
            number = chance.randrange(self.combinations)
            candidate = self.candidate(number)
            if candidate.changes:
                drawn[number] = candidate
        return tuple(drawn.values())

    def in_turn(self, count: int, seed: int = 0) -> tuple[Candidate, ...]:
        """Return a sample in the order of trying: those that change least first, among them by chance.

        What a budget has no room for is then what changes most, and nobody's order decides the rest.
        """
        drawn = list(self.sample(count, seed))
        random.Random(seed).shuffle(drawn)  # noqa: S311  # chance, not secrets
        return tuple(sorted(drawn, key=lambda candidate: candidate.moved))

    def candidate(self, number: int) -> Candidate:
        """Return the combination of that number; the last axis varies fastest."""
        chosen: list[Choice] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.choices))
            chosen.append(axis.choices[place])
        overrides: Document = {}
        run_with: dict[str, str] = {}
        for choice in reversed(chosen):
            for group, settings in choice.overrides.items():
                if group == TRAINING:
                    run_with.update(_flags(settings))
                else:
                    (run_with if group in RUN_WITH else overrides.setdefault(group, {})).update(settings)
        if overrides and self.allow_debug_variables:
            overrides["allow_debug_variables"] = True
        labels = [choice.label for choice in reversed(chosen) if choice.overrides]
        return Candidate("; ".join(labels) or AS_IT_IS, overrides, run_with, len(labels))


def read_space(path: Path) -> Space:
    """Read the space of a file; ProfileError with the path of what is wrong."""
    return space_of(read_document(path), str(path))


def space_of(document: Mapping[str, Any], where: str) -> Space:
    """Make a space of plain data, each value held against the schema of a tuning."""
    for name in document:
        if name not in _FIELDS:
            remedy = f"{meant(str(name), _FIELDS)}known: {', '.join(_FIELDS)}"
            raise ProfileError(f"{where}: {name}: there is no such field", remedy)
    allowed = document.get("allow_debug_variables", False)
    if not isinstance(allowed, bool):
        raise ProfileError(f"{where}: allow_debug_variables: {allowed!r} is neither true nor false", "correct it")
    axes = list(_axes(document, where))
    if not axes:
        raise ProfileError(
            f"{where}: no field has more than one value", f"give lists of values under any of: {', '.join(_GROUPS)}"
        )
    space = Space(tuple(axes), allowed)
    _refuse_overlaps(space, where)
    for axis in space.axes:
        # an axis of one setting has its path for its name, and what is wrong is told with it
        place = f"{where}: {axis.name}" if axis.name.startswith(f"{_TOGETHER}.") else where
        for choice in axis.choices:
            _check(choice, allowed, place)
    return space


def _axes(document: Mapping[str, Any], where: str) -> Iterator[Axis]:
    """Yield an axis for each setting of a group, then one for each bundle of settings that vary together."""
    for group in (*_GROUPS, _TOGETHER):
        kind, form = ("settings", "{…}, {…}") if group == _TOGETHER else ("values", "value, value")
        axes = document.get(group, {})
        if not isinstance(axes, Mapping):
            raise ProfileError(f"{where}: {group}: {axes!r} is not a mapping", f"give it as name: [{form}]")
        for key, values in axes.items():
            name = f"{group}.{key}"
            if not isinstance(values, list) or not values:
                raise ProfileError(f"{where}: {name}: {values!r} is not a list of {kind}", f"give it as [{form}]")
            if group == _TOGETHER:
                _check_bundles(values, f"{where}: {name}")
                yield _axis(name, values, where)
            else:
                yield _axis(name, [{} if value is None else {group: {key: value}} for value in values], where)


def _check_bundles(bundles: list[Any], where: str) -> None:
    for place, bundle in enumerate(bundles):
        if not isinstance(bundle, Mapping) or not all(isinstance(settings, Mapping) for settings in bundle.values()):
            raise ProfileError(f"{where}.{place}: {bundle!r} is not a mapping", "give it as {sysctl: {…}}")
        for group in bundle:
            if group not in _GROUPS:
                raise ProfileError(
                    f"{where}.{place}.{group}: there is no such field",
                    f"{meant(str(group), _GROUPS)}known: {', '.join(_GROUPS)}",
                )


def _axis(name: str, choices: list[Mapping[str, Mapping[str, Any]]], where: str) -> Axis:
    seen: set[str] = set()
    for choice in choices:
        text = json.dumps(choice, sort_keys=True, default=str)
        if text in seen:
            raise ProfileError(f"{where}: {name}: a value is listed twice", "take one of them away")
        seen.add(text)
    return Axis(name, tuple(Choice(_label(choice), choice) for choice in choices))


def _label(overrides: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(setting_label(key, value) for settings in overrides.values() for key, value in settings.items())


def setting_label(key: str, value: Any) -> str:
    """Return `key=value`, with the setting's other fields behind it."""
    if not isinstance(value, Mapping):
        return f"{key}={value}"
    extra = sorted(name for name in value if name not in ("value", "why", "source"))
    return f"{key}={value.get('value')}" + "".join(f" {name}={value[name]}" for name in extra)


def _refuse_overlaps(space: Space, where: str) -> None:
    owners: dict[tuple[str, str], str] = {}
    for axis in space.axes:
        for path in {
            (group, key) for choice in axis.choices for group, keys in choice.overrides.items() for key in keys
        }:
            other = owners.setdefault(path, axis.name)
            if other != axis.name:
                raise ProfileError(f"{where}: {'.'.join(path)} is varied by {other} and {axis.name}", "keep one")


def _check(choice: Choice, allowed: bool, where: str) -> None:
    settings = {
        group: {key: {"why": _WHY, **_fields(value), "origin": OVERRIDES} for key, value in values.items()}
        for group, values in choice.overrides.items()
        if group not in RUN_WITH
    }
    for group in RUN_WITH:
        _check_run(group, choice.overrides.get(group, {}), where)
    check_document(Tuning, {**settings, "allow_debug_variables": allowed}, where)


def _fields(value: Any) -> Mapping[str, Any]:
    """Return a bare value, or one with fields of its own: {value: …, never_lower: true}."""
    return value if isinstance(value, Mapping) else {"value": value}


def _flags(settings: Mapping[str, Any]) -> dict[str, str]:
    """Options as a command line has them; a switch is on or off by its name, and has no value."""
    flags = {}
    for name, value in settings.items():
        flags[flag(name, value)] = "" if isinstance(value, bool) else str(value)
    return flags


def flag_words(run_with: Mapping[str, str]) -> tuple[str, ...]:
    """Return what of it is options of the workload, as words of a command line."""
    return tuple(f"{name}={value}" if value else name for name, value in run_with.items() if name.startswith("--"))


def _check_run(group: str, values: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        if key not in RUN_WITH[group]:
            remedy = f"{meant(key, RUN_WITH[group])}known: {', '.join(RUN_WITH[group])}"
            raise ProfileError(f"{where}: {group}.{key}: there is no such field", remedy)
        allowed = RUN_WITH[group][key]
        if allowed is not None and value not in allowed:
            raise ProfileError(
                f"{where}: {group}.{key}: {value!r} is none of its values",
                f"{meant(str(value), allowed)}one of: {', '.join(allowed)}",
            )
        if group == TRAINING and isinstance(value, bool | int | float):
            continue
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            example = "bf16, 25 or true" if group == TRAINING else "eth0"
            raise ProfileError(
                f"{where}: {group}.{key}: {value!r} is not a plain value", f"give one, such as {example}"
            )
