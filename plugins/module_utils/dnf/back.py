# SPDX-License-Identifier: Apache-2.0
"""Packages put back by dnf, after a plan that may remove nothing else; locks as they were."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.packages import there
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import packages
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf.run import ENVIRONMENT, parse_plan, plan_argv, spec

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Change = dict[str, Any]

OPTIONS = ("--assumeyes", "--disableplugin=versionlock", "--setopt=install_weak_deps=False")
KEEPING = "--setopt=clean_requirements_on_remove=False"


def put_back(run: Run, changes: list[Change], root: str = "/") -> list[str]:
    """Remove, install and lock; the reasons for what could not be."""
    elsewhere = ["--installroot=" + root] if root != "/" else []
    gone = [change["subject"] for change in changes if there(change["now"]) and not there(change["before"])]
    old = [spec(change["subject"], change["before"]["version"]) for change in changes if _moved(change)]
    errors = []
    for arguments in (["install", *old] if old else [], [KEEPING, "remove", *gone] if gone else []):
        reason = _done(run, [*OPTIONS, *elsewhere, *arguments], changes) if arguments else ""
        errors += [reason] if reason else []
    locks(changes, root)
    return errors


def _moved(change: Change) -> bool:
    before, now = change["before"], change["now"]
    return there(before) and (not there(now) or now["version"] != before["version"])


def _done(run: Run, arguments: list[str], changes: list[Change]) -> str:
    """Run dnf, if it would remove nothing but what is expected; the reason if it did not."""
    status, out, err = run(plan_argv(arguments), environ_update=ENVIRONMENT)
    expected = {change["subject"] for change in changes}
    removed = {step["name"] for step in parse_plan(out) if step["action"] == "remove"}
    if status == 0 and removed - expected:
        others = ", ".join(sorted(removed - expected))
        return "dnf would also remove %s, which nodectl did not install: nothing was removed" % others
    if status == 0:
        status, out, err = run(["dnf", *arguments], environ_update=ENVIRONMENT)
    reason = " ".join((err or out).strip().splitlines()[-3:])
    return "dnf ended with %d: %s" % (status, reason) if status else ""


def locks(changes: list[Change], root: str = "/") -> None:
    """Each package is locked if it was, and not if it was not."""
    present, path = packages.installed_now(root), Path(root, packages.LOCKS.lstrip("/"))
    changed = [change for change in changes if change["before"] != change["now"]]
    names = [change["subject"] for change in changed]
    if not names or not path.exists():
        return
    text = packages.without(files.read_text(str(path)), names)
    held = [
        change["subject"] for change in changed if there(change["before"]) and change["before"]["selection"] == "hold"
    ]
    text += "".join(packages.lock_line(name, present[name]) + "\n" for name in held if name in present)
    files.write_whole(str(path), lambda stream: stream.write(text.encode()), mode=0o644)
