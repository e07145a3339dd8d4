# SPDX-License-Identifier: Apache-2.0
"""A look ahead: whether repositories have what a run will ask for, before it changes anything on the node."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import wanted_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.node_packages import Manager

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]

# placeholder in a wanted version for the driver's version, which is known when the driver's package is chosen
DRIVER = "@driver"
# how many of the existing packages a reason names
MOST_NAMED = 6


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
            name, version = (name, there[name]) if name else wanted_packages.choose(named, offers)
            versions[name] = version
            if package["driver"]:
                driver = version.partition("-")[0]
        except wanted_packages.NoVersionError as error:
            others = [other.replace(DRIVER, driver) for other in package["others"]]
            hint = f" ({package['hint']})" if package["hint"] else ""
            reasons += [] if package["optional"] else [f"{error}{_instead(others, offers)}{hint}"]
    return reasons, versions


def present(wanted: Wanted, there: dict[str, str]) -> str:
    """Return the one of the names that is installed in the wanted version; empty if none is."""
    fits = (name for name in wanted["names"] if wanted_packages.matches(there.get(name, ""), wanted["version"]))
    return next(fits, "")


def _instead(patterns: list[str], offers: Offers) -> str:
    """Return what there is in the place of a package, by each of the patterns."""
    parts = []
    for pattern in patterns:
        names = sorted(name for name in offers if fnmatch.fnmatchcase(name, pattern))
        parts.append(f"{pattern}: {', '.join(names[-MOST_NAMED:]) or 'none'}")
    return f"; there is {'; '.join(parts)}" if parts else ""
