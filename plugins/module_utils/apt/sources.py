# SPDX-License-Identifier: Apache-2.0
"""Repositories that apt's own files name, in either of their two forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    Source = dict[str, str]

# NVIDIA's layout below any host; a mirror keeps it, and the machine-learning repository had it too
NVIDIA_LAYOUT = re.compile(r"/compute/(cuda|machine-learning)/repos/")


def read(root: str = "/") -> list[Source]:
    """Every enabled source: file, uri, suite, signed_by, trusted."""
    apt = Path(root, "etc/apt")
    entries: list[Source] = []
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
        name = f"/{path.relative_to(root)}"
        if path.suffix == ".sources":
            entries.extend(deb822(name, read_or(str(path))))
        elif path.suffix == ".list":
            entries.extend(one_line(name, read_or(str(path))))
    return entries


def one_line(name: str, text: str) -> Iterator[Source]:
    """`deb [signed-by=KEY] URI SUITE ...` lines."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)", line)
        if match:
            options = dict(re.findall(r"([\w-]+)\s*\+?=\s*(\S+)", match[1] or ""))
            yield source(name, match[2], match[3], options.get("signed-by", ""), options.get("trusted", ""))


def deb822(name: str, text: str) -> Iterator[Source]:
    """Paragraphs of `Types`, `URIs`, `Suites`, `Signed-By`; a key in the file itself counts as `(inline)`."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[last] = fields.get(last, "") + "\n" + line.strip()
                continue
            last, _unused, value = line.partition(":")
            last = last.lower()
            fields[last] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        key = fields.get("signed-by", "").strip()
        signed_by = "(inline)" if "BEGIN PGP" in key else key
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield source(name, uri, suite, signed_by, fields.get("trusted", ""))


def source(name: str, uri: str, suite: str, signed_by: str, trusted: str) -> Source:
    """One repository as a file names it."""
    return {"file": name, "uri": uri, "suite": suite, "signed_by": signed_by, "trusted": trusted}


def same(left: str, right: str) -> bool:
    """Both addresses are one repository for apt."""
    return left.rstrip("/") == right.rstrip("/")


def others(entries: list[Source], uri: str, file: str) -> list[Source]:
    """Return sources of NVIDIA's packages that stand in files other than our own."""
    return [
        source
        for source in entries
        if source["file"] != file and (same(source["uri"], uri) or NVIDIA_LAYOUT.search(source["uri"]))
    ]
