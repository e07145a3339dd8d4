# SPDX-License-Identifier: Apache-2.0
"""The package manager of a node: dpkg and apt, or rpm and dnf; what both answer, in one form."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Union

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages as apt_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import sources as apt_sources
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import packages as dnf_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import sources as dnf_sources
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf.run import Dnf

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator
    from re import Pattern

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Manager = Union[Apt, Dnf]
    Packages = dict[str, dict[str, Any]]


def has_dnf(root: str = "/") -> bool:
    """Its packages are rpm's: dnf is there, and dpkg has installed nothing."""
    if os.path.exists(os.path.join(root, apt_packages.STATUS.lstrip("/"))):
        return False
    return os.path.isdir(os.path.join(root, "etc/dnf"))


def manager(run: Run, root: str = "/") -> Manager:
    """Return what installs packages there."""
    return Dnf(run, root) if has_dnf(root) else Apt(run, root)


def is_driver(key: str, version: str) -> bool:
    """Return whether the node's package of this key in this version is a part of a GPU driver."""
    return dnf_packages.is_driver(key, version) if has_dnf() else apt_packages.is_driver(key, version)


def put_back(run: Run, changes: list[dict[str, Any]]) -> list[str]:
    """Restore packages and holds by plans that may remove nothing else; the reasons for what could not be."""
    system, there = manager(run), apt_packages.there
    errors: list[str] = []
    gone = [change["subject"] for change in changes if there(change["now"]) and not there(change["before"])]
    choice = {
        change["subject"]: change["before"]["version"]
        for change in changes
        if there(change["before"])
        and (not there(change["now"]) or change["now"]["version"] != change["before"]["version"])
    }
    expected = {change["subject"].partition(":")[0] for change in changes}
    try:
        for name, version in list(choice.items()):
            if not any(version in versions for versions in system.offers([name]).values()):
                lost = f"{name}={version}: {system.name} no longer has it; add its repository, then roll back again"
                errors.append(lost)
                del choice[name]
        if system.interrupted(system.packages()):
            system.repair()
        for part in system.steps(choice, gone):
            plan = system.plan(*part)
            removed = {step["name"].partition(":")[0] for step in plan if step["action"] == "remove"} - expected
            if removed:
                others = f"{', '.join(sorted(removed))}, which nodectl did not install: nothing was removed"
                return [*errors, f"{system.name} would also remove {others}"]
            while not system.install(*part):
                pass
        system.restore_marks(changes)
    except apt_packages.PackagesError as error:
        errors.append(str(error))
    return errors


def driver_parts(root: str = "/") -> Iterator[dict[str, str]]:
    """Yield the driver's installed packages: name, version, and whose they are (nvidia, distribution, other)."""
    return dnf_packages.driver_rows(root) if has_dnf(root) else apt_packages.driver_parts(root)


def held(root: str, wanted: Pattern[str]) -> list[str]:
    """Return packages that are kept at their version and whose name begins so."""
    kept = [key.split(":")[0] for key, package in installed_now(root).items() if package["selection"] == "hold"]
    return sorted(name for name in kept if wanted.match(name))


def installed_now(root: str = "/") -> Packages:
    """Return the node's packages: version, selection (`hold` if kept at it), state, auto."""
    return (dnf_packages if has_dnf(root) else apt_packages).installed_now(root)


def sources(root: str, uri: str) -> list[dict[str, str]]:
    """Return the enabled repositories: file, uri, and why their packages are not to be trusted ("" if they are)."""
    return (dnf_sources if has_dnf(root) else apt_sources).read(root, uri)
