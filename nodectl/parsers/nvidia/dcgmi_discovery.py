"""Reads `dcgmi discovery -l`: the GPUs that DCGM has, and its NVSwitches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.parsers.nvidia.words import no_output
from nodectl.parsers.text import Line, bus_id, lines_of, unreadable, untagged

TOOL = "dcgmi-discovery"
_COUNT = re.compile(r"(?P<count>\d{1,6}) (?P<what>GPU|NvSwitch|CPU|ConnectX)(?:e?s)? found\.")
_FIRST = re.compile(r"\|\s*(?P<id>\d{1,6})\s*\|\s*Name: (?P<name>\S.*?)\s*\|?")
_MORE = re.compile(r"\|\s*\|\s*(?P<key>PCI Bus ID|Device UUID): (?P<value>\S+)\s*\|?")


@dataclass(frozen=True, slots=True)
class DiscoveredGpu:
    """A GPU under DCGM's own number."""

    id: int
    name: str
    bus_id: str
    uuid: str


@dataclass(frozen=True, slots=True)
class DcgmiDiscovery:
    """The parts that DCGM found; None where it says nothing of such a kind."""

    gpus: tuple[DiscoveredGpu, ...]
    nvswitches: int | None
    cpus: int | None


def parse_dcgmi_discovery(text: str) -> DcgmiDiscovery:
    """ParseError where GPUs are missing from the table, a row is cut, or there is no such output."""
    lines = list(untagged(lines_of(text, TOOL)))
    counts: dict[str, int] = {}
    gpus: list[tuple[Line, dict[str, str]]] = []
    for line in lines:
        content = line.text.strip()
        if match := _COUNT.match(content):
            counts[match["what"]] = int(match["count"])
        elif match := _FIRST.fullmatch(content):
            gpus.append((line, match.groupdict()))
        elif (match := _MORE.fullmatch(content)) and gpus:
            gpus[-1][1][match["key"]] = match["value"]
    if "GPU" not in counts:
        raise no_output(TOOL, lines, "'8 GPUs found.'")
    found = [_gpu(line, values) for line, values in gpus if "CPU" not in counts or "Device UUID" in values]
    if len(found) != counts["GPU"]:
        raise ParseError(
            f"{TOOL}: {counted(counts['GPU'], 'GPU was', 'GPUs were')} found, {len(found)} listed: the output is cut"
        )
    return DcgmiDiscovery(tuple(found), counts.get("NvSwitch"), counts.get("CPU"))


def _gpu(line: Line, values: dict[str, str]) -> DiscoveredGpu:
    address = bus_id(values.get("PCI Bus ID", ""))
    if address is None or "Device UUID" not in values:
        raise unreadable(TOOL, line, "a GPU without its address or UUID")
    return DiscoveredGpu(int(values["id"]), values["name"], address, values["Device UUID"])
