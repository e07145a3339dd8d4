# SPDX-License-Identifier: Apache-2.0
"""Versions of packages that are meant, and what a plan may not do besides; of any package manager."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Iterable

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]
    Steps = list[dict[str, str]]


class NoVersionError(ValueError):
    """No repository offers what is wanted."""


def matches(version: str, pattern: str | None) -> bool:
    """Return whether the version is the wanted one; none wanted: any will do."""
    return bool(version) and (pattern is None or fnmatch.fnmatchcase(version, pattern))


def numbers(version: str) -> list[int]:
    """Return the upstream numbers, for telling which of two NVIDIA versions is nearer."""
    upstream = version.rpartition(":")[2].partition("-")[0].partition("+")[0]
    return [int(part) for part in re.findall(r"\d+", upstream)]


def cuda_of(version: str) -> str:
    """`11.6` of `2.12.7-1+cuda11.6` (rpm: also `8.6.0.163-1.cuda11.8`); empty if the version names none."""
    match = re.search(r"[+.]cuda([\d.]+)", version)
    return match[1] if match else ""


def nearest(wanted: str, offered: Iterable[str]) -> str | None:
    """Return, of the versions for the same CUDA, the lowest above the wanted one, else the highest below it."""
    same = sorted((version for version in offered if cuda_of(version) == cuda_of(wanted)), key=numbers)
    above = [version for version in same if numbers(version) >= numbers(wanted)]
    return above[0] if above else (same[-1] if same else None)


def choose(wanted: Wanted, offers: Offers) -> tuple[str, str]:
    """(name, version) to install: the first of the names that is offered in the wanted version."""
    names, pattern = wanted["names"], wanted["version"]
    for name in names:
        for version in offers.get(name, []):
            if matches(version, pattern):
                return name, version
    if wanted.get("nearest") and pattern:
        for name in names:
            near = nearest(pattern, offers.get(name, []))
            if near:
                return name, near
    if not any(offers.get(name) for name in names):
        raise NoVersionError(f"no repository of this host has {' or '.join(names)}")
    offered = [f"{name} {', '.join(offers[name][:8])}" for name in names if offers.get(name)]
    asked = " or ".join(f"{name}={pattern}" for name in names)
    raise NoVersionError(f"no repository of this host has {asked}; it has {'; '.join(offered)}")


def objections(
    steps: Steps, chosen: set[str], gone: Iterable[str], may_come: Callable[[str, str], bool], held: set[str]
) -> list[str]:
    """Return what must not happen besides: removals, forbidden packages, changes of what others hold."""
    may_go, reasons = set(gone), []
    for step in steps:
        name = step["name"].partition(":")[0]
        if step["action"] == "remove" and name not in may_go:
            reasons.append(f"it would remove {name} {step['before']}")
        elif step["action"] == "install" and name not in chosen:
            if not may_come(name, step["after"]):
                reasons.append(f"it would bring {name} {step['after']}")
            elif name in held:
                reasons.append(f"it would change {name}, which is held at {step['before']}")
    return reasons


def as_lines(packages: dict[str, str], held: set[str]) -> str:
    """`name version` a line, with `(held)`, for a diff."""
    names = sorted(name for name in packages if packages[name])
    return "".join(f"{name} {packages[name]}{' (held)' if name in held else ''}\n" for name in names)
