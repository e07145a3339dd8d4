"""All checks that there are: what the modules below `nodectl.checks` declare, found by being there.

A module may say by `ORDER` where its findings stand: what explains others (a driver that is not loaded) comes before
them (GPUs that are missing). Modules without one follow in the order of their names; comparisons of a fleet come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from nodectl.checks.check import Check, Field, Judgement, Subject, Threshold
from nodectl.common.declarations import names_below

# checks of a job's hosts before it starts are asked by preflight only
_LAUNCH = "nodectl.checks.launch."
_LAST = 1000


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return every module of checks, in the order of their findings."""
    return _loaded(lambda name: not name.startswith(_LAUNCH))


@cache
def launch_modules() -> tuple[ModuleType, ...]:
    """Return the modules of preflight's checks, likewise."""
    return _loaded(lambda name: name.startswith(_LAUNCH))


def _loaded(wanted: Callable[[str], bool]) -> tuple[ModuleType, ...]:
    return tuple(sorted((import_module(name) for name in names_below("nodectl.checks") if wanted(name)), key=_place))


def _place(module: ModuleType) -> tuple[bool, int, str]:
    return module.__name__.startswith("nodectl.checks.fleet."), getattr(module, "ORDER", _LAST), module.__name__


@cache
def judgements() -> tuple[Judgement[Subject], ...]:
    """Every function that judges one host."""
    return tuple(dict.fromkeys(value for _, value in _members() if isinstance(value, Judgement)))


@cache
def variables() -> tuple[str, ...]:
    """Every variable of a host that a judgement asks for."""
    return tuple(sorted({name for judgement in judgements() for name in judgement.variables}))


@cache
def launch_judgements() -> tuple[Judgement[Any], ...]:
    """Return every function that judges a job's hosts: one host alone, or all of them against each other."""
    members = (value for module in launch_modules() for value in vars(module).values())
    return tuple(dict.fromkeys(value for value in members if isinstance(value, Judgement)))


@cache
def fields() -> Mapping[str, Field]:
    """Return what hosts are compared by: the fields by the ids of their checks."""
    return {field.check.id: field for module in modules() for field in _fields(module)}


def _fields(module: ModuleType) -> tuple[Field, ...]:
    fields_there: tuple[Field, ...] = getattr(module, "FIELDS", ())
    return fields_there


@cache
def checks() -> Mapping[str, Check]:
    """Every check of `nodectl health` by its id, in the order of the findings."""
    return {check.id: check for module in modules() for check in declared(module)}


@cache
def launch_checks() -> Mapping[str, Check]:
    """Every check before a job starts, by its id."""
    return {check.id: check for module in launch_modules() for check in declared(module)}


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every threshold by its name."""
    return {value.name: value for _, value in _members() if isinstance(value, Threshold)}


def declared(module: ModuleType) -> tuple[Check, ...]:
    """Return the module's checks, in the order in which they stand there."""
    module_checks: list[Check] = []
    for value in vars(module).values():
        if isinstance(value, Check):
            module_checks.append(value)
        elif isinstance(value, Judgement):
            module_checks.extend(value.checks)
    module_checks.extend(field.check for field in _fields(module))
    return tuple(dict.fromkeys(module_checks))


def _members() -> Iterator[tuple[ModuleType, object]]:
    return ((module, value) for module in modules() for value in vars(module).values())
