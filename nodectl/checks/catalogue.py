"""All checks that there are: what the modules below `nodectl.checks` declare, found by being there.

A module may say by `ORDER` where its findings stand: what explains others (a driver that is not loaded) comes before
them (GPUs that are missing). Modules without one follow in the order of their names; comparisons of a fleet come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    return _loaded(launch=False)


@cache
def launch_modules() -> tuple[ModuleType, ...]:
    """Return the modules of preflight's checks, likewise."""
    return _loaded(launch=True)


def _loaded(*, launch: bool) -> tuple[ModuleType, ...]:
    names = (name for name in names_below("nodectl.checks") if name.startswith(_LAUNCH) == launch)

    def place(module: ModuleType) -> tuple[bool, int, str]:
        return module.__name__.startswith("nodectl.checks.fleet."), getattr(module, "ORDER", _LAST), module.__name__

    return tuple(sorted(map(import_module, names), key=place))


def values(module: ModuleType) -> Iterator[object]:
    """Yield what the module declares, alone or as a row of a table, in the order in which it stands there."""
    for value in vars(module).values():
        yield from value if isinstance(value, tuple) else (value,)


def _judgements(of: Iterable[ModuleType]) -> tuple[Judgement[Any], ...]:
    return tuple(dict.fromkeys(one for module in of for one in values(module) if isinstance(one, Judgement)))


@cache
def judgements() -> tuple[Judgement[Subject], ...]:
    """Every function that judges one host."""
    return _judgements(modules())


@cache
def launch_judgements() -> tuple[Judgement[Any], ...]:
    """Return every function that judges a job's hosts: one host alone, or all of them against each other."""
    return _judgements(launch_modules())


@cache
def variables() -> tuple[str, ...]:
    """Every variable of a host that a judgement asks for."""
    return tuple(sorted({name for judgement in judgements() for name in judgement.variables}))


@cache
def fields() -> Mapping[str, Field]:
    """Return what hosts are compared by: the fields by the ids of their checks."""
    return {one.check.id: one for module in modules() for one in values(module) if isinstance(one, Field)}


@cache
def checks() -> Mapping[str, Check]:
    """Every check of `nodectl health` by its id, in the order of the findings."""
    return {check.id: check for module in modules() for check in declared(module)}


@cache
def launch_checks() -> Mapping[str, Check]:
    """Every check before a job starts, by its id."""
    return {check.id: check for module in launch_modules() for check in declared(module)}


@cache
def reads() -> Mapping[str, tuple[str, ...]]:
    """Return the facts that each check reads, by its id."""
    of_fields = {name: field.reads for name, field in fields().items()}
    judges = (*judgements(), *launch_judgements())
    return of_fields | {check.id: judge.reads for judge in judges for check in judge.checks}


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every threshold by its name."""
    return {one.name: one for module in modules() for one in values(module) if isinstance(one, Threshold)}


def declared(module: ModuleType) -> tuple[Check, ...]:
    """Return the module's checks, in the order in which they stand there."""
    checks_there: dict[Check, None] = {}
    for one in values(module):
        if isinstance(one, Check):
            checks_there[one] = None
        elif isinstance(one, Judgement):
            checks_there |= dict.fromkeys(one.checks)
        elif isinstance(one, Field):
            checks_there[one.check] = None
    return tuple(checks_there)
