# SPDX-License-Identifier: Apache-2.0
"""The package manager of a node: dpkg and apt, or rpm and dnf; what both answer, in one form."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Union

from ansible_collections.nodectl.fleet.plugins.module_utils import apt, dnf
from ansible_collections.nodectl.fleet.plugins.module_utils.wanted_packages import PackagesError, there

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from types import ModuleType

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Manager = Union[apt.Manager, dnf.Manager]


def has_dnf(root: str = "/") -> bool:
    """Its packages are rpm's: dnf is there, and dpkg has installed nothing."""
    if os.path.exists(os.path.join(root, apt.STATUS.lstrip("/"))):
        return False
    return os.path.isdir(os.path.join(root, "etc/dnf"))


def kind(root: str = "/") -> ModuleType:
    """Return `dnf` or `apt`, whose functions and whose Manager are for the packages there."""
    return dnf if has_dnf(root) else apt


def needed(run: Run, names: set[str]) -> dict[str, str]:
    """Return {package: `needed by NAME`} of those that dpkg would not remove, since something that stays needs them."""
    kept: dict[str, str] = {}
    while not has_dnf() and names - set(kept):
        going = sorted(names - set(kept))
        _status, _out, err = run(["dpkg", "--no-act", "--purge", *going], environ_update=apt.ENVIRONMENT)
        # dpkg names the machine's own architecture too
        rows = ((name, name.partition(":")[0], by) for name, by in re.findall(r"removal of (\S+):\n (\S+)", err))
        found = {name if name in names else plain: "needed by %s" % by for name, plain, by in rows}
        if not found.keys() & set(going):
            break
        kept.update(found)
    return kept


def put_back(run: Run, changes: list[dict[str, Any]]) -> list[str]:
    """Restore packages and holds by plans that may remove nothing else; the reasons for what could not be."""
    system: Manager = kind().Manager(run)
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
    except PackagesError as error:
        errors.append(str(error))
    return errors
