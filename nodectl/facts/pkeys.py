"""The partitions (P_Keys) that each InfiniBand port is a member of."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.facts.base import listed, matches, script, text_fact

_SHOW = """\
cd /sys/class/infiniband 2>/dev/null || exit 3
set -- */ports/*/pkeys
[ -d "$1" ] || exit 3
grep -sH '' */ports/*/pkeys/* | grep -v ':0x0000$'
exit 0
"""
_LINE = re.compile(r"([^/:]+)/ports/(\d+)/pkeys/(\d+):(0x[0-9a-fA-F]{4})")
_FULL = 0x8000


@dataclass(frozen=True, slots=True)
class Pkeys:
    """Keys by port (`mlx5_0/1`) in the order of its table: what is `0x8000` or more is full membership."""

    ports: Mapping[str, tuple[str, ...]]

    def limited(self, port: str) -> bool:
        """Its first key, which programs take that name none, is a limited membership."""
        keys = self.ports[port]
        return bool(keys) and not int(keys[0], 16) & _FULL


def _parse(text: str) -> Pkeys:
    rows: dict[str, dict[int, str]] = {}
    for match in matches(_LINE, text, "pkeys"):
        rows.setdefault(f"{match[1]}/{match[2]}", {})[int(match[3])] = match[4].lower()
    return Pkeys({port: tuple(keys[index] for index in sorted(keys)) for port, keys in sorted(rows.items())})


def _words(pkeys: Pkeys) -> str:
    return listed({key for keys in pkeys.ports.values() for key in keys})


FACT = text_fact(
    "pkeys", script("pkeys", _SHOW, hardware=True), _parse, _words, absent="the kernel has no RDMA device", row=232
)
