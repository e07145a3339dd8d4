# SPDX-License-Identifier: Apache-2.0
"""Packages put back by apt in one transaction, after a simulation that may remove nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import ENVIRONMENT, parse_madison, parse_simulation

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Change = dict[str, Any]

_GUARDS = ("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
_OPTIONS = ("-o", "APT::Get::AutomaticRemove=false", "-o", "Dpkg::Options::=--force-confold")
INSTALL = ["apt-get", "-y", "-q", "--purge", *_GUARDS, *_OPTIONS, "install"]


def put_back(run: Run, changes: list[Change]) -> list[str]:
    """Remove, install and mark; the reasons for what could not be."""
    if not changes:
        return []
    if any(package["state"] in packages.BROKEN for package in packages.installed_now().values()):
        reason = failure(run, ["dpkg", "--configure", "-a"], "dpkg --configure -a")
        if reason:
            return [reason]
    arguments, errors = wanted_words(run, changes)
    if arguments:
        reason = extra_removals(run, arguments, changes) or failure(run, [*INSTALL, *arguments], "apt-get")
        if reason:
            return [*errors, reason]
    present = packages.installed_now()
    gone = [change["subject"] for change in changes if change["before"] is None]
    left = [key for key in gone if present.get(key, {}).get("state") == "config-files"]
    if left:
        run(["dpkg", "--purge", *left], environ_update=ENVIRONMENT)
    return [*errors, *marks(run, changes)]


def failure(run: Run, argv: list[str], name: str) -> str:
    """Run it; the last lines of why it failed, or nothing."""
    status, out, err = run(argv, environ_update=ENVIRONMENT)
    return ended(name, status, out, err) if status else ""


def ended(name: str, status: int, out: str, err: str) -> str:
    """Return a program's status with its last lines."""
    return "%s ended with %d: %s" % (name, status, " ".join((err or out).strip().splitlines()[-3:]))


def wanted_words(run: Run, changes: list[Change]) -> tuple[list[str], list[str]]:
    """(apt-get's words, what apt no longer has)."""
    arguments, errors = [], []
    for change in changes:
        old, new, key = change["before"], change["now"], change["subject"]
        if not packages.there(old):
            arguments += [key + "-"] if packages.there(new) else []
        elif not packages.there(new) or new["version"] != old["version"]:
            pinned = "%s=%s" % (key, old["version"])
            # `apt-cache show` also knows versions that are only installed
            offers = parse_madison(run(["apt-cache", "madison", key])[1])
            if any(old["version"] in versions for versions in offers.values()):
                arguments.append(pinned)
            else:
                errors.append("%s: apt no longer has it; add its repository, then roll back again" % pinned)
    return arguments, errors


def extra_removals(run: Run, arguments: list[str], changes: list[Change]) -> str:
    """Return why apt's own plan is not followed; "" if it removes nothing but what is expected."""
    status, out, err = run([*INSTALL, "--simulate", *arguments], environ_update=ENVIRONMENT)
    if status != 0:
        return ended("apt-get --simulate", status, out, err)
    expected = {change["subject"].partition(":")[0] for change in changes}
    removed = {step["name"].partition(":")[0] for step in parse_simulation(out) if step["action"] == "remove"}
    if removed <= expected:
        return ""
    return "apt would also remove %s, which nodectl did not install: nothing was removed" % ", ".join(
        sorted(removed - expected)
    )


def marks(run: Run, changes: list[Change]) -> list[str]:
    """Return holds and manual marks as they were."""
    errors = []
    present = packages.installed_now()
    todo: dict[str, list[str]] = {}
    for change in changes:
        old, new, key = change["before"], present.get(change["subject"]), change["subject"]
        if not packages.there(old) or new is None:
            continue
        if old["selection"] != new["selection"] and "hold" in (old["selection"], new["selection"]):
            todo.setdefault("hold" if old["selection"] == "hold" else "unhold", []).append(key)
        if old["auto"] != new["auto"]:
            todo.setdefault("auto" if old["auto"] else "manual", []).append(key)
    for verb, keys in sorted(todo.items()):
        errors.append(failure(run, ["apt-mark", verb, *keys], "apt-mark %s" % verb))
    return [error for error in errors if error]
