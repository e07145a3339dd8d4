"""The fabric as the hosts themselves can tell of it: the switches beside them, by LLDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.recording import Command
from nodectl.model.topology import FabricGraph
from nodectl.parsers.linux.lldp import Lldp, parse_lldp
from nodectl.topology.from_lldp import lldp_graph

_LLDP = Command("lldpctl", ("lldpctl", "-f", "json"), hardware=True)
KEYS = (_LLDP,)


def graph_of(texts: Mapping[str, Mapping[str, str]], hosts: Sequence[Host]) -> FabricGraph | None:
    """From the outputs by host and key; None where no host has any."""
    neighbors: dict[str, Lldp] = {}
    for host, found in texts.items():
        if _LLDP.key in found:
            try:
                neighbors[host] = parse_lldp(found[_LLDP.key])
            except ParseError as error:
                raise ParseError(f"{host}: {error.message}", error.remedy) from error
    if any(each.neighbors for each in neighbors.values()):
        return lldp_graph(neighbors, hosts, "lldpctl on the hosts")
    return None
