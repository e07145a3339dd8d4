# SPDX-License-Identifier: Apache-2.0
"""Repositories that dnf's own files name."""

from __future__ import annotations

import configparser
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    # file, uri, and why its packages are not to be trusted ("" if they are)
    Source = dict[str, str]


def read(root: str, uri: str) -> list[Source]:
    """Return every enabled source; `uri` has the release that stands for $releasever."""
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
