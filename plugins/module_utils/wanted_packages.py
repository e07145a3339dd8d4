# SPDX-License-Identifier: Apache-2.0
"""Versions of packages that are meant, whether repositories have them, and what a plan may not do besides."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.node_packages import Manager

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]
    Steps = list[dict[str, str]]


# the states of dpkg in which a package's files are not all in place
BROKEN = ("unpacked", "half-configured", "half-installed", "triggers-awaited", "triggers-pending")
# 535.183.01-0ubuntu1, 580.159.04-1; not 1.17.8-1 (container toolkit), 12.8.1-1 (GDS), 20220217+3 (nvidia-support)
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"
# placeholder in a wanted version for the driver's version, which is known when the driver's package is chosen
DRIVER = "@driver"
# how many of the existing packages a reason names
MOST_NAMED = 6


class PackagesError(Exception):
    """apt or dnf could not do it."""


class NoVersionError(ValueError):
    """No repository offers what is wanted."""


def there(package: dict[str, Any] | None) -> bool:
    """Return whether it is installed in some way, and not only its leftover configuration is there."""
    return package is not None and package["state"] not in ("config-files", "not-installed")


def is_driver_part(name: str, version: str, family: Iterable[str]) -> bool:
    """Return whether it bears a name of the driver's family, and a driver's version."""
    named = any(fnmatch.fnmatchcase(name, pattern) for pattern in family)
    return named and re.search(DRIVER_VERSION, version) is not None


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


def lacking(
    system: Manager, wanted: list[Wanted], there: dict[str, str], repository: dict[str, str] | None
) -> tuple[list[str], dict[str, str]]:
    """Return a reason for each package that no repository has, and {name: version} of the others.

    `repository` will be a source; it is read separately if the node's lists lack something.
    """
    reasons, versions = judged(wanted, {}, there)
    if not reasons:
        return [], versions
    # the driver's version is not known yet: packages with the version in their name are asked for in any version
    asked = {name.replace(DRIVER, "*") for package in wanted for name in (*package["names"], *package["others"])}
    names = sorted(asked)
    offers: Offers = system.offers(names)
    reasons, versions = judged(wanted, offers, there)
    if not reasons or not repository:
        return reasons, versions
    aside = system.offers_aside(repository["uri"], repository["suite"], names)
    return judged(wanted, {name: [*offers.get(name, []), *aside.get(name, [])] for name in {*offers, *aside}}, there)


def judged(wanted: Iterable[Wanted], offers: Offers, there: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return why packages cannot be had, and {name: version} of the others."""
    reasons: list[str] = []
    versions: dict[str, str] = {}
    driver = ""
    for package in wanted:
        if any(DRIVER in text for text in (*package["names"], package["version"] or "")) and not driver:
            continue  # the driver itself is lacking, and said
        named = {**package, "names": [name.replace(DRIVER, driver) for name in package["names"]]}
        named["version"] = (package["version"] or "").replace(DRIVER, driver) or None
        try:
            name = present(named, there)
            name, version = (name, there[name]) if name else choose(named, offers)
            versions[name] = version
            if package["driver"]:
                driver = version.partition("-")[0]
        except NoVersionError as error:
            others = []  # what there is in its place
            for pattern in (other.replace(DRIVER, driver) for other in package["others"]):
                names = sorted(name for name in offers if fnmatch.fnmatchcase(name, pattern))
                others.append(f"{pattern}: {', '.join(names[-MOST_NAMED:]) or 'none'}")
            instead = f"; there is {'; '.join(others)}" if others else ""
            hint = f" ({package['hint']})" if package["hint"] else ""
            reasons += [] if package["optional"] else [f"{error}{instead}{hint}"]
    return reasons, versions


def present(wanted: Wanted, there: dict[str, str]) -> str:
    """Return the one of the names that is installed in the wanted version; empty if none is."""
    fits = (name for name in wanted["names"] if matches(there.get(name, ""), wanted["version"]))
    return next(fits, "")


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
