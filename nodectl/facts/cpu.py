"""The host's processors, and how they and the memory are spread over NUMA nodes."""

import re

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output, output_unless_missing, whole
from nodectl.model.facts import Cpu, Numa, NumaNode
from nodectl.model.recording import Command, Recording
from nodectl.parsers.linux.lscpu import parse_lscpu

# FILE:LINE as grep prints it: the shell would read byte by byte, which not every kernel answers
_NUMA = """\
cd /sys/devices/system/node 2>/dev/null || exit 3
grep -sHE '^[0-9, -]*$|MemTotal|MemFree' node[0-9]*/cpulist node[0-9]*/distance node[0-9]*/meminfo
"""
_LINE = re.compile(r"node(\d+)/(cpulist|distance|meminfo):(?:Node \d+ (Mem\w+):)?\s*(.*)")


def _read(recording: Recording) -> Cpu:
    return parse_lscpu(output(recording, "lscpu"))


def _numa(recording: Recording) -> Numa:
    nodes: dict[int, dict[str, str]] = {}
    text = output_unless_missing(recording, "numa", "the kernel knows no NUMA nodes")
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"numa: line {number}: {line[:200]!r}")
        nodes.setdefault(int(match[1]), {})[match[3] or match[2]] = match[4].strip()
    if not nodes:
        raise ParseError("numa: no node is named")
    return Numa(tuple(_node(number, nodes[number]) for number in sorted(nodes)))


def _node(number: int, named: dict[str, str]) -> NumaNode:
    distances = tuple(int(word) for word in named.get("distance", "").split() if word.isdigit())
    total, free = (_mib(named.get(name, "")) for name in ("MemTotal", "MemFree"))
    return NumaNode(number, named.get("cpulist", ""), total, free, distances)


def _mib(text: str) -> int | None:
    """`2048 kB` is 2."""
    value = whole(text.removesuffix(" kB"))
    return None if value is None else value // 1024


FACT = Fact("cpu", lambda venv: (Command("lscpu", ("lscpu",), hardware=True),), _read)
NUMA = Fact("numa", lambda venv: (Command("numa", ("sh", "-c", _NUMA), hardware=True),), _numa)
