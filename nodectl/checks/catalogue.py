"""All checks that there are: what the modules below `nodectl.checks` declare, found by being there.

A module may say by `ORDER` where its findings stand: what explains others (a driver that is not loaded) comes before
them (GPUs that are missing). Modules without one follow in the order of their names; comparisons of a fleet come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any

from nodectl.checks.check import Check, Field, Judgement, Subject, Threshold
from nodectl.common.declarations import load, names_below
from nodectl.common.resources import share_dir
from nodectl.common.spelling import meant
from nodectl.errors import DeclarationError
from nodectl.facts import catalogue as facts

# checks of a job's hosts before it starts are asked by preflight only
_LAUNCH = "nodectl.checks.launch."
_LAST = 1000


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return every module of checks, in the order of their findings; raise DeclarationError for a wrong declaration."""
    ordered = _loaded(lambda name: not name.startswith(_LAUNCH))
    _refuse_unknown_facts(ordered)
    return ordered


@cache
def launch_modules() -> tuple[ModuleType, ...]:
    """Return the modules of preflight's checks, likewise."""
    return _loaded(lambda name: name.startswith(_LAUNCH))


def _loaded(wanted: Callable[[str], bool]) -> tuple[ModuleType, ...]:
    ordered = tuple(sorted((load(name) for name in names_below("nodectl.checks") if wanted(name)), key=_place))
    _refuse_doubles(ordered)
    _refuse_unknown_roles(ordered)
    return ordered


def _refuse_unknown_facts(ordered: Sequence[ModuleType]) -> None:
    """Raise DeclarationError for a check that reads a fact which is not there: it would never say anything."""
    subjects = list(facts.modules())
    for module in ordered:
        judges = [value for value in vars(module).values() if isinstance(value, Judgement)]
        readers: Iterator[Judgement[Any] | Field] = chain(judges, _fields(module))
        for name in (name for reader in readers for name in reader.reads if name not in subjects):
            raise DeclarationError(
                f"{module.__name__} reads {name!r}, and there is no such fact", meant(name, subjects)
            )


def _refuse_unknown_roles(ordered: Sequence[ModuleType]) -> None:
    """Raise DeclarationError for a check that names a role which is not there: no verify would run it."""
    role_names = [folder.name for folder in (share_dir() / "roles").glob("[!.]*")]
    for module in ordered:
        for check in declared(module):
            named = (*check.roles, *(role for roles in check.roles_of.values() for role in roles))
            for role in (role for role in named if role not in role_names):
                reason = f"{module.__name__}: the check {check.id!r} names the role {role!r}, and there is no such role"
                raise DeclarationError(reason, meant(role, role_names))


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
    """Return the module's FIELDS; DeclarationError where that is no tuple of them."""
    declared: tuple[Field, ...] = getattr(module, "FIELDS", ())
    if not isinstance(declared, tuple) or not all(isinstance(field, Field) for field in declared):
        raise DeclarationError(f"{module.__name__}: FIELDS is no tuple of nodectl.checks.check.Field")
    return declared


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


def _refuse_doubles(ordered: tuple[ModuleType, ...]) -> None:
    """Raise DeclarationError for an id or a threshold's name that occurs twice, and a check that no function judges."""
    seen: dict[str, tuple[object, str]] = {}
    for module in ordered:
        names = [(f"check {check.id!r}", check) for check in declared(module)]
        limits = [value for value in vars(module).values() if isinstance(value, Threshold)]
        for name, value in (*names, *((f"threshold {limit.name!r}", limit) for limit in limits)):
            first, where = seen.setdefault(name, (value, module.__name__))
            if first is not value:
                raise DeclarationError(f"the {name} is declared twice: in {where} and in {module.__name__}")
        judged = {check for value in vars(module).values() if isinstance(value, Judgement) for check in value.checks}
        for check in declared(module):
            if judged and check not in judged:
                raise DeclarationError(f"the check {check.id!r} is judged by no function of {module.__name__}")
