# SPDX-License-Identifier: Apache-2.0
"""Packages of a node as rpm knows them, which of them dnf's versionlock keeps, and which are a GPU driver's."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_text

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable, Iterator

    Package = dict[str, Any]
    Packages = dict[str, Package]

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
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"
# the ends of the keys that sign NVIDIA's packages for RHEL: of 8 and 9 since 2022, and of 10
NVIDIA_KEYS = ("9cd0a493d42d0685", "cdf6ba43")
_DISTRIBUTION = re.compile(r"Red Hat|Rocky|AlmaLinux|CentOS|Oracle", re.I)


def is_driver(key: str, version: str) -> bool:
    """Return whether the package of this name in this version is a part of a GPU driver."""
    named = any(fnmatch.fnmatchcase(key, pattern) for pattern in DRIVER_FAMILY)
    return named and re.search(DRIVER_VERSION, version) is not None


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


def locks(text: str) -> list[str]:
    """Return the locks of versionlock's file; its excludes (`!`) keep nothing at a version."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and line[0] not in "#!"]


def fits(pattern: str, name: str, package: Package) -> bool:
    """Return whether a lock is for the package in just this version; a lock of a name alone is for any."""
    upstream = package["version"].rpartition("-")[0]
    versions = [package["version"], upstream]
    versions += ["%s:%s" % (package["epoch"], version) for version in versions]
    spelled = ["%s-%s" % (name, version) for version in versions]
    spelled += ["%s.%s" % (text, package["arch"]) for text in spelled]
    return pattern != name and any(fnmatch.fnmatchcase(text, pattern) for text in spelled)


def lock_line(key: str, package: Package) -> str:
    """Return the lock's line as `dnf versionlock add` writes it."""
    return "%s-%s:%s.*" % (key, package["epoch"], package["version"])


def without(text: str, names: Iterable[str]) -> str:
    """Return the file's text without the locks of these names, whatever their version."""
    gone = [re.compile(r"%s-(\d+:)?\d" % re.escape(name)) for name in names]
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line[:1] in "#!" or not any(name.match(line) for name in gone))


def installed_now(root: str = "/") -> Packages:
    """Return the node's packages, by rpm and the file of versionlock."""
    return parse(rows(root), locks(read_text(os.path.join(root, LOCKS.lstrip("/")))))


def owner(row: dict[str, str]) -> str:
    """Return whose package it is: nvidia, distribution or other; by its signature, else by what it says of itself."""
    if row["signature"].lower().endswith(NVIDIA_KEYS) or "nvidia" in (row["vendor"] + row["packager"]).lower():
        return "nvidia"
    return "distribution" if _DISTRIBUTION.search(row["vendor"]) else "other"


def driver_rows(root: str = "/") -> Iterator[dict[str, str]]:
    """Yield the driver's installed packages: name, version, and whose they are."""
    for row in rows(root):
        version = "%s-%s" % (row["upstream"], row["release"])
        if is_driver(row["name"], version):
            yield {"name": row["name"], "version": version, "from": owner(row)}


def in_order(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions as rpm does.

    Numbers before letters, longer ones newer, `~` older than nothing.
    """
    ranks = []
    for part in re.findall(r"~|\d+|[A-Za-z]+", version):
        ranks.append((-1, 0, "") if part == "~" else (2, int(part), "") if part.isdigit() else (1, 0, part))
    return [*ranks, (0, 0, "")]
