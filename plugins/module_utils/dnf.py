# SPDX-License-Identifier: Apache-2.0
"""dnf and rpm on a node, behind the same words as `apt`; on another root if one is given."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.wanted_packages import PackagesError, is_driver_part, there

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable, Iterator

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Package = dict[str, Any]
    Packages = dict[str, Package]
    Steps = list[dict[str, str]]

LOCKS = "/etc/dnf/plugins/versionlock.list"
# where rpm keeps its database: of RHEL 8 and 9, and of what is newer
DATABASES = ("var/lib/rpm", "usr/lib/sysimage/rpm")
_FIELDS = ("NAME", "EPOCHNUM", "VERSION", "RELEASE", "ARCH", "VENDOR", "PACKAGER", "RSAHEADER:pgpsig", "INSTALLTIME")
QUERY = "\\t".join("%{{{}}}".format(field) for field in _FIELDS) + "\\n"
# several versions of these lie side by side, so each is a package of its own
SIDE_BY_SIDE = re.compile(r"(kernel|kernel-(core|devel|modules)(-.+)?|kernel-64k(-.+)?|gpg-pubkey)\Z")
# of NVIDIA's rhel repositories; much else has such a name, a driver's part also has a driver's version
DRIVER_FAMILY = (
    *("cuda-drivers*", "kmod-nvidia-*", "libXNVCtrl*", "libnvidia-*", "libnvsdm*", "nvidia-*", "nvlink5*"),
    "xorg-x11-nvidia*",
)
# the ends of the keys that sign NVIDIA's packages for RHEL: of 8 and 9 since 2022, and of 10
NVIDIA_KEYS = ("9cd0a493d42d0685", "cdf6ba43")
_DISTRIBUTION = re.compile(r"Red Hat|Rocky|AlmaLinux|CentOS|Oracle", re.I)


def is_driver(key: str, version: str) -> bool:
    """Return whether the package of this name in this version is a part of a GPU driver."""
    return is_driver_part(key, version, DRIVER_FAMILY)


def rows(root: str = "/") -> list[dict[str, str]]:
    """Each installed package as rpm prints it; none if there is no database. OSError where rpm cannot tell."""
    if not any(os.path.isdir(os.path.join(root, folder)) for folder in DATABASES):
        return []
    argv = ["rpm", "--root", root, "-qa", "--queryformat", QUERY]
    # node_look asks before any module is there to run a program
    done = subprocess.run(argv, capture_output=True, check=False)  # pylint: disable=ansible-bad-function
    if done.returncode:
        stderr = done.stderr.decode(errors="replace").strip()
        raise OSError("rpm -qa ended with %d: %s" % (done.returncode, stderr))
    return parse_rows(done.stdout.decode(errors="replace"))


def parse_rows(text: str) -> list[dict[str, str]]:
    """Pure: rpm's lines in the form of QUERY; keys that rpm keeps as packages are left out."""
    names = ("name", "epoch", "upstream", "release", "arch", "vendor", "packager", "signature", "came")
    cells = (line.split("\t") for line in text.splitlines())
    packages = (dict(zip(names, row)) for row in cells if len(row) == len(names))  # noqa: B905 - Python 3.8
    return [row for row in packages if row["name"] != "gpg-pubkey"]


def parse(installed: Iterable[dict[str, str]], patterns: Iterable[str]) -> Packages:
    """Pure: {key: version, epoch, arch, selection, state, auto}; the version is `version-release` without an epoch.

    The key is the name; of what lies side by side the whole `name-version-release.arch`, of another architecture
    `name.arch`. What is there in two versions was left so by a transaction that was killed.
    """
    locked, packages = list(patterns), {}
    for row in installed:
        version = "%s-%s" % (row["upstream"], row["release"])
        package = {"version": version, "epoch": row["epoch"], "arch": row["arch"], "state": "installed", "auto": False}
        package["came"] = row["came"]
        package["selection"] = "hold" if any(fits(pattern, row["name"], package) for pattern in locked) else "install"
        key = row["name"]
        if SIDE_BY_SIDE.match(key):
            key = "%s-%s.%s" % (key, version, row["arch"])
        elif key in packages and packages[key]["arch"] != row["arch"]:
            key = "%s.%s" % (key, row["arch"])
        elif key in packages:
            package["state"] = "unpacked"
        packages[key] = package
    return packages


def fits(pattern: str, name: str, package: Package) -> bool:
    """Return whether a lock is for the package in just this version; a lock of a name alone is for any."""
    upstream = package["version"].rpartition("-")[0]
    versions = [package["version"], upstream]
    versions += ["%s:%s" % (package["epoch"], version) for version in versions]
    spelled = ["%s-%s" % (name, version) for version in versions]
    spelled += ["%s.%s" % (text, package["arch"]) for text in spelled]
    return pattern != name and any(fnmatch.fnmatchcase(text, pattern) for text in spelled)


def without(text: str, names: Iterable[str]) -> str:
    """Return the file's text without the locks of these names, whatever their version."""
    gone = [re.compile(r"%s-(\d+:)?\d" % re.escape(name)) for name in names]
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line[:1] in "#!" or not any(name.match(line) for name in gone))


def installed_now(root: str = "/") -> Packages:
    """Return the node's packages, by rpm and the file of versionlock."""
    lines = (line.strip() for line in files.read_text(os.path.join(root, LOCKS.lstrip("/"))).splitlines())
    # excludes (`!`) keep nothing at a version
    return parse(rows(root), (line for line in lines if line and line[0] not in "#!"))


def driver_parts(root: str = "/") -> Iterator[dict[str, str]]:
    """Yield the driver's installed packages: name, version, and whose they are; by signature, else by their vendor."""
    for row in rows(root):
        version = "%s-%s" % (row["upstream"], row["release"])
        if is_driver(row["name"], version):
            others = "distribution" if _DISTRIBUTION.search(row["vendor"]) else "other"
            named = "nvidia" in (row["vendor"] + row["packager"]).lower()
            owner = "nvidia" if named or row["signature"].lower().endswith(NVIDIA_KEYS) else others
            yield {"name": row["name"], "version": version, "from": owner}


def in_order(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions as rpm does.

    Numbers before letters, longer ones newer, `~` older than nothing.
    """
    ranks = []
    for part in re.findall(r"~|\d+|[A-Za-z]+", version):
        ranks.append((-1, 0, "") if part == "~" else (2, int(part), "") if part.isdigit() else (1, 0, part))
    return [*ranks, (0, 0, "")]


def sources(root: str, uri: str) -> list[dict[str, str]]:
    """Return every enabled source as `apt` does; `uri` has the release that stands for $releasever."""
    release = re.search(r"rhel(\d+)", uri)
    variables = {"$basearch": platform.machine(), "$releasever": release[1] if release else ""}
    found = []
    for path in sorted(Path(root, "etc/yum.repos.d").glob("*.repo")):
        for address, problem in sections(path.read_text(errors="replace")):
            for name, value in variables.items():
                address = address.replace(name, value)
            found.append({"file": f"/{path.relative_to(root)}", "uri": address, "problem": problem})
    return found


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield address and problem of each enabled section of a .repo file; nothing if it cannot be read."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    for name in parser.sections():
        section = parser[name]
        if not _is_on(section, "enabled"):
            continue
        problem = "" if section.get("gpgkey", "").strip() else "without a key (gpgkey)"
        problem = problem if _is_on(section, "gpgcheck") else "without checking signatures (gpgcheck=0)"
        for address in filter(None, re.split(r"[\s,]+", section.get("baseurl", ""))):
            yield address, problem


def _is_on(section: configparser.SectionProxy, option: str) -> bool:
    return section.get(option, "1").strip().lower() not in ("0", "no", "false")


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


class Manager:
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
        return installed_now(self.root)

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
            dnf = Manager(self.execute, self.root)
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
        return not SIDE_BY_SIDE.match(name)

    def plan(self, choice: dict[str, str], gone: list[str]) -> Steps:
        """Return what dnf would do, by its own solver."""
        doing = "plan %s" % " ".join([*choice, *gone])
        python = next(path for path in PYTHONS if os.access(path, os.X_OK))
        return parse_plan(self.run(python, "-c", PLAN, *self.words(choice, gone), doing=doing))

    def words(self, choice: dict[str, str], gone: list[str]) -> list[str]:
        """Return dnf's arguments to install `choice` and remove `gone` in one transaction.

        A lock of an earlier version is nodectl's own, and the plan is judged.
        """
        # the name says the version already of what lies side by side
        specs = [name if version in name else "%s-%s" % (name, version) for name, version in sorted(choice.items())]
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
        present, path = self.packages(), Path(self.root, LOCKS.lstrip("/"))
        if not names and not path.exists():
            return
        text = without(files.read_text(str(path)), [*names, *others])
        text += "" if not text or text.endswith("\n") else "\n"
        held = {name: present[name] for name in names if name in present}
        text += "".join("%s-%s:%s.*\n" % (name, held[name]["epoch"], held[name]["version"]) for name in held)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(str(path), lambda stream: stream.write(text.encode()), mode=0o644)


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
    return {name: sorted(versions[name], key=in_order, reverse=True) for name in sorted(asked_for)}


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
    return "%s-%s.%s" % (name, version, arch) if SIDE_BY_SIDE.match(name) else name
