"""Fabrics made to measure: fat trees as ibnetdiscover prints them, and small graphs by their cables."""

from collections.abc import Sequence

from nodectl.model.topology import Attachment, FabricGraph, Switch, Trunk


class Fabric:
    """Switches and adapters with cables between them, each on the next free port."""

    def __init__(self) -> None:
        self._guids: dict[str, tuple[int, str]] = {}
        self._ports: dict[str, dict[int, tuple[str, int, str]]] = {}

    def add(self, name: str, kind: str = "Switch") -> None:
        self._guids[name] = (0xE09D730300000000 + len(self._guids), kind)
        self._ports[name] = {}

    def cable(self, a: str, b: str, speed: str = "4xNDR") -> None:
        port_a, port_b = len(self._ports[a]) + 1, len(self._ports[b]) + 1
        self._ports[a][port_a] = (b, port_b, speed)
        self._ports[b][port_b] = (a, port_a, speed)

    def host(self, name: str, nic: str, switch: str, speed: str = "4xNDR") -> None:
        """An adapter of a host on a switch."""
        self.add(f"{name} {nic}", "Ca")
        self.cable(f"{name} {nic}", switch, speed)

    def text(self) -> str:
        """ibnetdiscover's."""
        return "\n".join(
            ["#", "# Topology file: generated on Fri Aug  8 06:33:24 2025", "#", *map(self._node, self._guids)]
        )

    def _node(self, name: str) -> str:
        guid, kind = self._guids[name]
        mark = "S" if kind == "Switch" else "H"
        lines = [
            "",
            "vendid=0x2c9",
            f"{'switch' if kind == 'Switch' else 'ca'}guid=0x{guid:x}({guid:x})",
            f'{kind}\t{len(self._ports[name]) + 1} "{mark}-{guid:016x}"\t\t# "{name}"',
        ]
        for port, (peer, peer_port, speed) in self._ports[name].items():
            peer_guid, peer_kind = self._guids[peer]
            peer_mark = "S" if peer_kind == "Switch" else "H"
            own = f"({guid:x})" if mark == "H" else ""
            lines.append(f'[{port}]{own}\t"{peer_mark}-{peer_guid:016x}"[{peer_port}]\t\t# "{peer}" lid 7 {speed}')
        return "\n".join(lines) + "\n"


def three_level(pods: int = 8, leaves: int = 4, hosts_per_leaf: int = 4) -> Fabric:
    """Pods of leaves and spines below a core."""
    fabric = Fabric()
    for core in range(leaves):
        fabric.add(f"core{core}")
    for pod in range(pods):
        for number in range(leaves):
            fabric.add(f"pod{pod}-spine{number}")
            fabric.cable(f"pod{pod}-spine{number}", f"core{number}")
        for leaf in range(leaves):
            fabric.add(f"pod{pod}-leaf{leaf}")
            for number in range(leaves):
                fabric.cable(f"pod{pod}-leaf{leaf}", f"pod{pod}-spine{number}")
            for place in range(hosts_per_leaf):
                host = (pod * leaves + leaf) * hosts_per_leaf + place + 1
                fabric.host(f"node{host:03}", "HCA-1", f"pod{pod}-leaf{leaf}")
    return fabric


def graph(
    homes: Sequence[tuple[str, str, str]] | Sequence[tuple[str, str, str, float]],
    trunks: Sequence[tuple[str, str]] | Sequence[tuple[str, str, float]] = (),
    *,
    trunks_known: bool = True,
) -> FabricGraph:
    """From (host, NIC, switch[, Gbit/s]) and (switch, switch[, Gbit/s])."""
    attachments = tuple(Attachment(*each) for each in homes)
    cables = tuple(Trunk(*each) for each in trunks)
    names = dict.fromkeys([each.switch for each in attachments] + [end for each in cables for end in (each.a, each.b)])
    hosts = tuple(dict.fromkeys(each.host for each in attachments))
    switches = tuple(Switch(name, name) for name in names)
    return FabricGraph("a test", switches, attachments, cables, hosts=hosts, trunks_known=trunks_known)
