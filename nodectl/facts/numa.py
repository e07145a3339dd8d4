"""The host's NUMA nodes: processors, memory, distances."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import gib, matches, script, text_fact, whole

# FILE:LINE as grep prints it: the shell would read byte by byte, which not every kernel answers
_SHOW = """\
cd /sys/devices/system/node 2>/dev/null || exit 3
exec grep -sHE '^[0-9, -]*$|MemTotal|MemFree' node[0-9]*/cpulist node[0-9]*/distance node[0-9]*/meminfo
"""
_LINE = re.compile(r"node(\d+)/(cpulist|distance|meminfo):(?:Node \d+ (Mem\w+):)?\s*(.*)")


@dataclass(frozen=True, slots=True)
class NumaNode:
    """`distances` are to all nodes, in their order; `cpus` as the kernel writes lists: 0-7,64-71."""

    node: int
    cpus: str
    memory_mib: int | None
    free_mib: int | None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Numa:
    """The host's NUMA nodes, sorted by number."""

    nodes: tuple[NumaNode, ...]


def _parse(text: str) -> Numa:
    nodes: dict[int, dict[str, str]] = {}
    for match in matches(_LINE, text, "numa"):
        nodes.setdefault(int(match[1]), {})[match[3] or match[2]] = match[4].strip()
    if not nodes:
        raise ParseError("numa: no node is named")
    return Numa(tuple(_node(number, nodes[number]) for number in sorted(nodes)))


def _node(number: int, values: dict[str, str]) -> NumaNode:
    distances = tuple(int(word) for word in values.get("distance", "").split() if word.isdigit())
    total, free = (_mib(values.get(name, "")) for name in ("MemTotal", "MemFree"))
    return NumaNode(number, values.get("cpulist", ""), total, free, distances)


def _mib(text: str) -> int | None:
    """Whole MiB of a text such as `2048 kB`; None for any other text."""
    value = whole(text.removesuffix(" kB"))
    return None if value is None else value // 1024


def _words(numa: Numa) -> str:
    return "; ".join(f"{node.node}: {node.cpus or 'no CPU'}, {gib(node.memory_mib)}" for node in numa.nodes)


FACT = text_fact(
    "numa", script("numa", _SHOW, hardware=True), _parse, _words, absent="the kernel knows no NUMA nodes", row=110
)
