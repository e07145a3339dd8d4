"""A search space: what may be set to which values, read from YAML and held against the schema of a tuning.

sysctl:
  net.ipv4.tcp_rmem: [null, "4096 131072 16777216"]      # null: as the profile has it
together:                                                # values that only make sense with each other
  streams:
    - {}
    - nccl: {NCCL_NSOCKS_PERTHREAD: 4, NCCL_SOCKET_NTHREADS: 2}
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodectl.errors import ProfileError
from nodectl.profiles.load import check_document, read_document
from nodectl.profiles.overrides import OVERRIDES, SETTINGS
from nodectl.profiles.schema import Document, Tuning

_TOGETHER = "together"
_FIELDS = (*SETTINGS, _TOGETHER, "description", "allow_debug_variables")
_WHY = "tried by nodectl tune"


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an axis: the overrides that set it, none to leave the profile's."""

    label: str
    overrides: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What varies by itself."""

    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the space, as `nodectl_overrides` would set it."""

    label: str
    overrides: Document


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of the axes but the one that changes nothing, in a fixed order."""

    axes: tuple[Axis, ...]
    allow_debug_variables: bool = False

    @property
    def combinations(self) -> int:
        """How many there are, the one that changes nothing among them."""
        return math.prod(len(axis.choices) for axis in self.axes)

    def __iter__(self) -> Iterator[Candidate]:
        for number in range(self.combinations):
            found = self.candidate(number)
            if found.overrides:
                yield found

    def sample(self, count: int, seed: int = 0) -> tuple[Candidate, ...]:
        """At most `count` different candidates, the same for the same seed; a space of millions is not walked."""
        if self.combinations <= count + 1:
            return tuple(self)[:count]
        chance = random.Random(seed)  # noqa: S311  # chance, not secrets
        drawn: dict[int, Candidate] = {}
        while len(drawn) < count:
            number = chance.randrange(self.combinations)
            candidate = self.candidate(number)
            if candidate.overrides:
                drawn[number] = candidate
        return tuple(drawn.values())

    def candidate(self, number: int) -> Candidate:
        """The combination of that number; the last axis varies fastest."""
        chosen: list[Choice] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.choices))
            chosen.append(axis.choices[place])
        overrides: Document = {}
        for choice in reversed(chosen):
            for group, settings in choice.overrides.items():
                overrides.setdefault(group, {}).update(settings)
        if overrides and self.allow_debug_variables:
            overrides["allow_debug_variables"] = True
        labels = [choice.label for choice in reversed(chosen) if choice.overrides]
        return Candidate("; ".join(labels) or "as it is", overrides)


def read_space(path: Path) -> Space:
    """The space of a file; ProfileError with the path of what is wrong."""
    return space_of(read_document(path), str(path))


def space_of(document: Mapping[str, Any], where: str) -> Space:
    """A space from plain data, each value held against the schema of a tuning."""
    for field in document:
        if field not in _FIELDS:
            raise ProfileError(f"{where}: {field}: no such field", f"known: {', '.join(_FIELDS)}")
    allowed = document.get("allow_debug_variables", False)
    if not isinstance(allowed, bool):
        raise ProfileError(f"{where}: allow_debug_variables: {allowed!r} is neither true nor false", "correct it")
    axes = [*_settings(document, where), *_together(document, where)]
    if not axes:
        raise ProfileError(f"{where}: nothing varies", f"give lists of values under any of: {', '.join(SETTINGS)}")
    space = Space(tuple(axes), allowed)
    _refuse_overlaps(space, where)
    for axis in space.axes:
        for choice in axis.choices:
            _check(choice, allowed, f"{where}: {axis.name}")
    return space


def _settings(document: Mapping[str, Any], where: str) -> Iterator[Axis]:
    for group in SETTINGS:
        settings = document.get(group, {})
        if not isinstance(settings, Mapping):
            raise ProfileError(f"{where}: {group}: {settings!r} is no mapping", "give it as name: [value, value]")
        for key, values in settings.items():
            name = f"{group}.{key}"
            if not isinstance(values, list) or not values:
                raise ProfileError(f"{where}: {name}: {values!r} is no list of values", "give it as [value, value]")
            yield _axis(name, [{} if value is None else {group: {key: value}} for value in values], where)


def _together(document: Mapping[str, Any], where: str) -> Iterator[Axis]:
    bundles = document.get(_TOGETHER, {})
    if not isinstance(bundles, Mapping):
        raise ProfileError(f"{where}: {_TOGETHER}: {bundles!r} is no mapping", "give it as name: [{…}, {…}]")
    for name, choices in bundles.items():
        path = f"{_TOGETHER}.{name}"
        if not isinstance(choices, list) or not choices:
            raise ProfileError(f"{where}: {path}: {choices!r} is no list of settings", "give it as [{}, {sysctl: …}]")
        for place, choice in enumerate(choices):
            if not isinstance(choice, Mapping) or not all(isinstance(each, Mapping) for each in choice.values()):
                raise ProfileError(f"{where}: {path}.{place}: {choice!r} is no mapping", "give it as {sysctl: {…}}")
            for group in choice:
                if group not in SETTINGS:
                    raise ProfileError(
                        f"{where}: {path}.{place}.{group}: no such field", f"known: {', '.join(SETTINGS)}"
                    )
        yield _axis(path, choices, where)


def _axis(name: str, choices: list[Mapping[str, Mapping[str, Any]]], where: str) -> Axis:
    seen: set[str] = set()
    for choice in choices:
        text = json.dumps(choice, sort_keys=True, default=str)
        if text in seen:
            raise ProfileError(f"{where}: {name}: the same value stands twice", "take one of them away")
        seen.add(text)
    return Axis(name, tuple(Choice(_label(choice), choice) for choice in choices))


def _label(overrides: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{key}={value}" for settings in overrides.values() for key, value in settings.items())


def _refuse_overlaps(space: Space, where: str) -> None:
    owners: dict[tuple[str, str], str] = {}
    for axis in space.axes:
        for path in {(group, key) for each in axis.choices for group, keys in each.overrides.items() for key in keys}:
            other = owners.setdefault(path, axis.name)
            if other != axis.name:
                raise ProfileError(f"{where}: {'.'.join(path)} is varied by {other} and {axis.name}", "keep one")


def _check(choice: Choice, allowed: bool, where: str) -> None:
    settings = {
        group: {key: {"value": value, "why": _WHY, "origin": OVERRIDES} for key, value in values.items()}
        for group, values in choice.overrides.items()
    }
    check_document(Tuning, {**settings, "allow_debug_variables": allowed}, where)
