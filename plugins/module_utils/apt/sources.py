# SPDX-License-Identifier: Apache-2.0
"""Repositories that apt's own files name, in either of their two forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    # file, uri, and why its packages are not to be trusted ("" if they are)
    Source = dict[str, str]


def read(root: str, _uri: str = "") -> list[Source]:
    """Return every enabled source."""
    apt = Path(root, "etc/apt")
    found: list[Source] = []
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
        reader = {".sources": deb822, ".list": one_line}.get(path.suffix)
        for uri, options in reader(read_or(str(path))) if reader else ():
            found.append({"file": f"/{path.relative_to(root)}", "uri": uri, "problem": problem(root, options)})
    return found


def one_line(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield address and options of `deb [signed-by=KEY] URI SUITE ...` lines."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+\S+", line)
        if match:
            yield match[2], dict(re.findall(r"([\w-]+)\s*\+?=\s*(\S+)", match[1] or ""))


def deb822(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield address and fields of paragraphs of `Types`, `URIs`, `Suites`, `Signed-By`."""
    for block in re.split(r"\n\s*\n", text):
        lines = re.sub(r"\n\s+", " ", "\n".join(line for line in block.splitlines() if line[:1] != "#")).splitlines()
        fields = {name.lower(): value.strip() for name, _unused, value in (line.partition(":") for line in lines)}
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0")
        if enabled and "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                yield uri, fields


def problem(root: str, options: dict[str, str]) -> str:
    """Return why packages of a source with these options are not to be trusted; "" if they are."""
    signed_by = (options.get("signed-by", "").split() or [""])[0]
    if options.get("trusted", "").lower() in ("yes", "true", "1"):
        return "without checking signatures (trusted=yes)"
    if not signed_by:
        return "with no signed-by, so with any key that apt trusts"
    if signed_by[0] == "/" and not Path(root, signed_by.lstrip("/")).exists():
        return f"signed by {signed_by}, which is not there"
    return ""
