"""All probes: every `PROBE` that is declared below nodectl/probes, or by the articles' measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from nodectl.common.declarations import modules_below
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.model.measurement import MeasurementKind
from nodectl.probes.base import GROUPS, Probe

AnyProbe = Probe[Any]
_PACKAGES = ("nodectl.probes", "nodectl.articles")


@cache
def declarations() -> Mapping[str, AnyProbe]:
    """Return all declarations by name."""
    # what declares nothing need not be imported: the help of all probes would take three times as long
    modules = (module for package in _PACKAGES for module in modules_below(package, "PROBE"))
    probes = {module.PROBE.name: module.PROBE for module in modules}
    return MappingProxyType(dict(sorted(probes.items())))


def listed() -> tuple[AnyProbe, ...]:
    """Return the probes that are commands of their own."""
    return tuple(probe for probe in declarations().values() if probe.listed)


def kind_of(probe: str) -> MeasurementKind:
    """Return what this probe says of its values; nothing, for a probe that this nodectl does not have."""
    declared = declarations().get(probe)
    return MeasurementKind() if declared is None else declared.results


def chosen(text: str) -> tuple[AnyProbe, ...]:
    """Return the probes of `NAME[,NAME…]`, each once, in that order; a group stands for its probes.

    UsageError for a name that is neither.
    """
    by_name = {probe.name: probe for probe in listed()}
    wanted: dict[str, AnyProbe] = {}
    for name in (part.strip() for part in text.split(",")):
        if name in by_name:
            wanted[name] = by_name[name]
        elif name in GROUPS:
            wanted |= {probe.name: probe for probe in group(name)}
        else:
            raise unknown(name)
    return tuple(wanted.values())


def group(name: str) -> Sequence[AnyProbe]:
    """Return the listed probes that belong to a group; `all` is every one."""
    return [probe for probe in listed() if name == "all" or name in probe.groups]


def unknown(name: str) -> UsageError:
    """Return the error for a name that is no probe's, with the one that may be meant."""
    names = [probe.name for probe in listed()]
    hint = meant(name, [*names, *GROUPS])
    return UsageError(
        f"there is no probe '{name}'", f"{hint}one of: {', '.join(names)}; or a group: {', '.join(GROUPS)}"
    )
