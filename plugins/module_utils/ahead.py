# SPDX-License-Identifier: Apache-2.0
"""A look ahead: whether repositories have what a run will ask for, before it changes anything on the node."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import wanted_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.nvidia_repository import Repository

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]

# placeholder in a wanted version for the driver's version, which is known when the driver's package is chosen
DRIVER = "@driver"
# how many of the existing packages a reason names
MOST_NAMED = 6


def lacking(repository: Repository, wanted: list[Wanted]) -> tuple[list[str], str]:
    """Return a reason for each package that no repository has, and the driver's version.

    NVIDIA's repository is read separately where the node's lists lack it.
    """
    there = {name: package["version"] for name, package in repository.system.packages().items() if _whole(package)}
    reasons, driver = judged(wanted, {}, there)
    if not reasons:
        return [], driver
    # the driver's version is not known yet: packages with the version in their name are asked for in any version
    asked = [
        name.replace(DRIVER, "*") for package in wanted for name in (*package["names"], *package.get("others", ()))
    ]
    names = sorted(set(asked))
    offers = repository.system.offers(names)
    reasons, driver = judged(wanted, offers, there)
    if not reasons:
        return [], driver
    aside = repository.read_aside(names)
    return judged(wanted, {name: [*offers.get(name, []), *aside.get(name, [])] for name in {*offers, *aside}}, there)


def _whole(package: dict[str, Any]) -> bool:
    return bool(package["state"] == "installed")


def judged(wanted: Iterable[Wanted], offers: Offers, there: dict[str, str]) -> tuple[list[str], str]:
    """Return why each package cannot be had, and the driver's version; packages installed as wanted are skipped."""
    reasons, driver = [], ""
    for package in wanted:
        if any(DRIVER in text for text in (*package["names"], package.get("version") or "")) and not driver:
            continue  # the driver itself is lacking, and said
        named = {**package, "names": [name.replace(DRIVER, driver) for name in package["names"]]}
        pattern = (package.get("version") or "").replace(DRIVER, driver) or None
        version = next(
            (there[name] for name in named["names"] if wanted_packages.matches(there.get(name, ""), pattern)), ""
        )
        try:
            version = version or wanted_packages.choose({**named, "version": pattern}, offers)[1]
        except wanted_packages.NoVersionError as error:
            others = [other.replace(DRIVER, driver) for other in package.get("others", ())]
            hint = package.get("hint")
            reasons.append(f"{error}{_instead(others, offers)}" + (f" ({hint})" if hint else ""))
        if package.get("driver"):
            driver = version.partition("-")[0]
    return reasons, driver


def _instead(patterns: list[str], offers: Offers) -> str:
    """Return what there is in the place of a package, by each of the patterns."""
    parts = []
    for pattern in patterns:
        names = sorted(name for name in offers if fnmatch.fnmatchcase(name, pattern))
        parts.append(f"{pattern}: {', '.join(names[-MOST_NAMED:]) or 'none'}")
    return f"; there is {'; '.join(parts)}" if parts else ""
