# SPDX-License-Identifier: Apache-2.0
"""Packages of a node as dpkg and apt know them, read from their own files, and which of them may go."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or, read_text

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    Package = dict[str, Any]
    Packages = dict[str, Package]


class PackagesError(Exception):
    """apt or dnf could not do it."""


STATUS = "/var/lib/dpkg/status"
MARKS = "/var/lib/apt/extended_states"
# the states of dpkg in which a package's files are not all in place
BROKEN = ("unpacked", "half-configured", "half-installed", "triggers-awaited", "triggers-pending")
# a host that loses these loses its GPUs, so they go by name only (`--packages`); docs/rollback.md lists them too.
# Names of NVIDIA's and the distributions' repositories alike: with the branch in them (Ubuntu up to 580) and without
# (Debian's always, Ubuntu's from 590 on). Much else has such a name; a driver's part also has a driver's version
DRIVER_FAMILY = (
    "cuda-drivers*",
    "firmware-nvidia-*",
    "lib*-nvidia*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvidia-*",
    "libnvoptix1",
    "libnvsdm*",
    "libxnvctrl*",
    "nvidia-*",
    "nvlink5*",
    "xserver-xorg-video-nvidia*",
)
# modules that a distribution built for one of its kernels: the version is the kernel's
DRIVER_MODULES = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")
# 535.183.01-0ubuntu1, 580.159.04-1; not 1.17.8-1 (container toolkit), 12.8.1-1 (GDS), 20220217+3 (nvidia-support)
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"

_DRIVER_PACKAGE = re.compile(
    r"(cuda-drivers(-\d+)?|nvidia-open(-\d+)?|nvidia-fabricmanager(-.+)?"  # NVIDIA
    r"|nvidia-driver(?!-pinning|-assistant)(-.+)?|nvidia-(open-)?kernel-.+|nvidia-smi|libcuda1"  # NVIDIA and Debian
    r"|(lib)?nvidia-(legacy|tesla)-.+"  # Debian, for older cards
    r"|nvidia-(dkms|headless|utils)(-.+)?|libnvidia-compute(-.+)?"  # Ubuntu
    r"|linux-(modules|objects|signatures)-nvidia-.+)\Z"  # Ubuntu, for one kernel
)
_DISTRIBUTION = re.compile(r"[@.](ubuntu|debian|canonical)\.(com|net|org)", re.I)


def is_driver(key: str, version: str) -> bool:
    """Return whether this version of a package (`name` or `name:architecture`) is a part of a GPU driver."""
    name = key.partition(":")[0]
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in DRIVER_MODULES):
        return True
    named = any(fnmatch.fnmatchcase(name, pattern) for pattern in DRIVER_FAMILY)
    return named and re.search(DRIVER_VERSION, version) is not None


def driver_parts(root: str = "/") -> Iterator[Package]:
    """Yield what makes a driver, of the installed: name, version, and whose they are (nvidia, distribution, other)."""
    for fields in stanzas(read_or(os.path.join(root, STATUS.lstrip("/")))):
        name, version = fields["Package"], fields.get("Version", "")
        if fields.get("Status", "").endswith(" installed") and _DRIVER_PACKAGE.match(name) and is_driver(name, version):
            yield {"name": name, "version": version, "from": owner(fields)}


def owner(fields: dict[str, str]) -> str:
    """Return whose package it is, by its maintainer."""
    maintainer = fields.get("Maintainer", "")
    if "@nvidia.com" in maintainer.lower():
        return "nvidia"
    return "distribution" if _DISTRIBUTION.search(maintainer) else "other"


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of `Field: value`; continuation lines are not needed here and left out."""
    for block in text.split("\n\n"):
        fields = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                fields[name] = value.strip()
        if "Package" in fields:
            yield fields


def parse(status: str, marks: str) -> tuple[Packages, dict[str, dict[str, str]]]:
    """({key: version, selection, state, auto}, {key: dpkg's fields}); a key has `:architecture` only where foreign."""
    paragraphs = [fields for fields in stanzas(status) if fields.get("Status", "").split()[2:] != ["not-installed"]]
    native = next((fields["Architecture"] for fields in paragraphs if fields["Package"] == "dpkg"), "all")
    automatic = {
        (fields["Package"], fields.get("Architecture", native))
        for fields in stanzas(marks)
        if fields.get("Auto-Installed") == "1"
    }
    packages, details = {}, {}
    for fields in paragraphs:
        name, architecture = fields["Package"], fields.get("Architecture", native)
        native_package = architecture in (native, "all")
        key = name if native_package else "%s:%s" % (name, architecture)
        flags = fields.get("Status", "").split()
        if len(flags) != 3:
            continue
        packages[key] = {
            "version": fields.get("Version", ""),
            "selection": flags[0],
            "state": flags[2],
            # apt notes a package for all architectures under the machine's own
            "auto": (name, architecture) in automatic or (architecture == "all" and (name, native) in automatic),
        }
        details[key] = fields
    return packages, details


def installed_now(root: str = "/") -> Packages:
    """Return the node's packages, without asking a program."""
    status, marks = (read_text(os.path.join(root, path.lstrip("/"))) for path in (STATUS, MARKS))
    return parse(status, marks)[0]


def there(package: Package | None) -> bool:
    """Installed in some way, not only its leftover configuration."""
    return package is not None and package["state"] not in ("config-files", "not-installed")


def alternatives(fields: dict[str, str]) -> Iterator[list[str]]:
    """Each dependency as the names that can meet it, without versions and architectures."""
    for field in ("Pre-Depends", "Depends"):
        for group in filter(None, (part.strip() for part in fields.get(field, "").split(","))):
            yield [re.split(r"[\s:(]", name.strip(), maxsplit=1)[0] for name in group.split("|")]


def provided(fields: dict[str, str]) -> set[str]:
    """Names that the package answers to."""
    names = (re.split(r"[\s:(]", part.strip(), maxsplit=1)[0] for part in fields.get("Provides", "").split(","))
    return {fields["Package"], *filter(None, names)}


def needed(candidates: set[str], details: dict[str, dict[str, str]]) -> dict[str, str]:
    """Pure: {candidate: who needs it}: those that cannot go because something that stays depends on them."""
    staying = set(details) - candidates
    kept: dict[str, str] = {}
    while True:
        held = staying | set(kept)
        names = set().union(*(provided(details[key]) for key in held)) if held else set()
        more: dict[str, str] = {}
        for key in sorted(held):
            for group in alternatives(details[key]):
                if not names.intersection(group):
                    for candidate in sorted(candidates - held):
                        if candidate in details and provided(details[candidate]).intersection(group):
                            more.setdefault(candidate, key)
        if not more:
            return kept
        kept.update(more)
