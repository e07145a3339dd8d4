# SPDX-License-Identifier: Apache-2.0
"""Offers and plans of apt, read from its own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Offers = dict[str, list[str]]
    Steps = list[dict[str, str]]


def parse_madison(text: str) -> Offers:
    """{package: its versions, newest first} of `apt-cache madison`."""
    offers: Offers = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and "Packages" in cells[2] and cells[1] not in offers.setdefault(cells[0], []):
            offers[cells[0]].append(cells[1])
    return offers


def parse_simulation(text: str) -> Steps:
    """`apt-get --simulate`: each package that would be installed, changed or removed."""
    steps = []
    for line in text.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", line)
        if match:
            action = "install" if match[1] == "Inst" else "remove"
            steps.append({"action": action, "name": match[2], "before": match[3] or "", "after": match[4] or ""})
    return steps
