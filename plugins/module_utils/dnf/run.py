# SPDX-License-Identifier: Apache-2.0
"""How dnf is called: without questions, waiting for another's lock, on another root where one is given."""

from __future__ import annotations

import fnmatch
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.packages import PackagesError, there
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Packages = dict[str, dict[str, Any]]
    Steps = list[dict[str, str]]

ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
# the Python that has dnf, which need not be the one that Ansible uses; RHEL 8's is 3.6
PYTHONS = ("/usr/libexec/platform-python", "/usr/bin/python3")
MARK = "nodectl-plan "
# dnf itself, but what it would do is printed in the place of being done; `--assumeno` prints a table for people
PLAN = (
    """\
import json
import sys

import dnf.cli.cli
import dnf.cli.main


def shown(self, display=()):
    def row(package):
        return [package.name, package.arch, "{}-{}".format(package.version, package.release)]

    done = self.transaction
    steps = {"in": [row(p) for p in done.install_set], "out": [row(p) for p in done.remove_set]} if done else {}
    print("\\n%s" + json.dumps(steps))


dnf.cli.cli.BaseCli.do_transaction = shown
sys.exit(dnf.cli.main.main(sys.argv[1:]))
"""
    % MARK
)


class Dnf:
    """The node's dnf and rpm; a `root` other than / is an installation below it."""

    name = "dnf"
    # rpm can install below another root, and runs no service there
    elsewhere = True

    def __init__(self, execute: Run, root: str = "/") -> None:
        self.execute, self.root, self._has_renewed = execute, root, False
        self.options = ["--assumeyes", "--setopt=install_weak_deps=False"]
        self.options += ["--installroot=" + root] if root != "/" else []

    def packages(self) -> Packages:
        """Return what rpm holds now."""
        return packages.installed_now(self.root)

    @staticmethod
    def is_driver(name: str, version: str) -> bool:
        """Return whether the package is a part of a GPU driver."""
        return packages.is_driver(name, version)

    def call(self, *argv: str) -> tuple[int, str, str]:
        """Run a program on the node: (exit status, output, errors)."""
        return self.execute(list(argv), environ_update=ENVIRONMENT)

    def run(self, *argv: str, doing: str) -> str:
        """Return the output; PackagesError with dnf's last words if it fails."""
        status, out, err = self.call(*argv)
        if status:
            lines = [line.strip() for line in (out + err).splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith(("Error", "Problem", "-", "No match", "Failed"))]
            raise PackagesError("dnf could not {}: {}".format(doing, "\n".join((errors or lines)[-12:])))
        return out

    def offers(self, names: list[str]) -> dict[str, list[str]]:
        """{package: its versions, newest first}, of the module streams that are enabled; a name may be a pattern."""
        form = "%{name}\t%{version}-%{release}\t%{arch}\n"
        options = [*self.options, "--quiet", "--disableplugin=versionlock"]
        argv = ["dnf", *options, "repoquery", "--available", "--queryformat", form, *names]
        return offered(names, self.run(*argv, doing="ask its repositories")) if names else {}

    def offers_aside(self, uri: str, _suite: str, names: list[str]) -> dict[str, list[str]]:
        """Return what a repository offers, of all its streams, that is no source yet."""
        with tempfile.TemporaryDirectory(prefix="nodectl-dnf-") as folder:
            dnf = Dnf(self.execute, self.root)
            dnf.options += [f"--repofrompath=aside,{uri}", "--repo=aside", f"--setopt=cachedir={folder}"]
            dnf.options += ["--setopt=aside.module_hotfixes=1", "--setopt=aside.skip_if_unavailable=0"]
            dnf.run("dnf", *dnf.options, "--quiet", "makecache", doing=f"read {uri}")
            return dnf.offers(names)

    def renew(self) -> bool:
        """Have dnf read all its repositories, once; False if that was done already."""
        if self._has_renewed:
            return False
        self._has_renewed = True
        self.call("dnf", *self.options, "--quiet", "makecache", "--refresh")
        return True

    def read(self, uri: str, file: str) -> None:
        """Do nothing: dnf reads a new repository by itself."""

    @staticmethod
    def without_lists() -> str:
        """Return what apt says where it has read nothing; dnf reads by itself."""
        return ""

    def interrupted(self, present: Packages) -> list[str]:
        """Return packages that a transaction, killed in the middle, left in two versions."""
        return sorted(name for name in present if present[name]["state"] == "unpacked")

    def repair(self) -> None:
        """Leave only the newest of each."""
        self.run("dnf", *self.options, "remove", "--duplicates", doing="repair an interrupted installation")

    @staticmethod
    def came(_name: str, package: dict[str, Any]) -> float:
        """Return when rpm installed it, in seconds since 1970."""
        return float(package["came"])

    @staticmethod
    def holds(name: str) -> bool:
        """Return whether the package is one to lock.

        A lock of one kernel's headers would keep those of all others away.
        """
        return not packages.SIDE_BY_SIDE.match(name)

    def plan(self, choice: dict[str, str], gone: list[str]) -> Steps:
        """Return what dnf would do, by its own solver."""
        doing = "plan %s" % " ".join([*choice, *gone])
        return parse_plan(self.run(*plan_argv(self.words(choice, gone)), doing=doing))

    def words(self, choice: dict[str, str], gone: list[str]) -> list[str]:
        """Return dnf's arguments to install `choice` and remove `gone` in one transaction.

        A lock of an earlier version is nodectl's own, and the plan is judged.
        """
        specs = [spec(name, version) for name, version in sorted(choice.items())]
        options = [*self.options, "--disableplugin=versionlock"]
        if specs:
            # with what must go excluded nothing may need it; `--allowerasing` then takes it away
            return [*options, *(["--allowerasing"] if gone else []), "install", *specs]
        return [*options, "--setopt=clean_requirements_on_remove=False", "remove", *gone]

    def install(self, choice: dict[str, str], gone: list[str]) -> bool:
        """Follow the plan; remove alone what must go and is still there. dnf itself renews stale lists: return True."""
        doing = "install %s" % (" ".join(choice) or ", ".join(gone))
        self.run("dnf", *self.words(choice, gone), doing=doing)
        left = [name for name in gone if name in self.packages()] if choice else []
        if left:
            self.run("dnf", *self.words({}, left), doing="remove %s" % ", ".join(left))
        return True

    @staticmethod
    def steps(choice: dict[str, str], gone: list[str]) -> list[tuple[dict[str, str], list[str]]]:
        """Return the transactions that restore versions and remove `gone`."""
        return [part for part in ((choice, []), ({}, gone)) if any(part)]

    def restore_marks(self, changes: Iterable[dict[str, Any]]) -> None:
        """Lock each package that was locked, and no other of these."""
        before = {change["subject"]: change["before"] for change in changes}
        self.hold([name for name in before if there(before[name]) and before[name]["selection"] == "hold"], before)

    def hold(self, names: list[str], others: Iterable[str] = ()) -> None:
        """Lock each at the version that it has, and `others` no more.

        As `dnf versionlock` does it, which would read all repositories.
        """
        present, path = self.packages(), Path(self.root, packages.LOCKS.lstrip("/"))
        if not names and not path.exists():
            return
        text = packages.without(files.read_text(str(path)), [*names, *others])
        text += "" if not text or text.endswith("\n") else "\n"
        text += "".join(packages.lock_line(name, present[name]) + "\n" for name in names if name in present)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(str(path), lambda stream: stream.write(text.encode()), mode=0o644)


def plan_argv(arguments: list[str]) -> list[str]:
    """Return the command that prints what dnf would do with these arguments."""
    return [next(path for path in PYTHONS if os.access(path, os.X_OK)), "-c", PLAN, *arguments]


def spec(name: str, version: str) -> str:
    """Return what dnf takes for a package in this version; of what lies side by side the name says it already."""
    return name if version in name else "%s-%s" % (name, version)


def offered(names: list[str], text: str) -> dict[str, list[str]]:
    """Pure: {name as it was asked for: versions, newest first} of repoquery's rows."""
    versions: dict[str, set[str]] = {}
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) == 3:
            name, version, arch = cells
            for asked in (name, "%s-%s" % (name, version), "%s-%s.%s" % (name, version, arch)):
                versions.setdefault(asked, set()).add(version)
    asked_for = {name for name in versions if any(name == asked or fnmatch.fnmatchcase(name, asked) for asked in names)}
    return {name: sorted(versions[name], key=packages.in_order, reverse=True) for name in sorted(asked_for)}


def parse_plan(text: str) -> Steps:
    """Pure: each package that would be installed, changed or removed, of what PLAN prints among dnf's own lines."""
    marked = [line[len(MARK) :] for line in text.splitlines() if line.startswith(MARK)]
    plan: dict[str, list[list[str]]] = json.loads(marked[-1]) if marked else {}
    gone = {(_key(*row), row[1]): row[2] for row in plan.get("out", ())}
    steps = []
    for row in sorted(plan.get("in", ())):
        key = _key(*row)
        steps.append({"action": "install", "name": key, "before": gone.pop((key, row[1]), ""), "after": row[2]})
    for key, arch in sorted(gone):
        steps.append({"action": "remove", "name": key, "before": gone[key, arch], "after": ""})
    return steps


def _key(name: str, arch: str, version: str) -> str:
    """Return a package's key: with its version where several lie side by side."""
    return "%s-%s.%s" % (name, version, arch) if packages.SIDE_BY_SIDE.match(name) else name
