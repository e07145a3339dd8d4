"""Findings on the fabric as a whole, against what the operator allows: hops, parts, and capacity of the leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.topology import FabricGraph, SwitchLoad

# the host of a finding that blames no single one
FABRIC = "fabric"
MAX_HOPS = 3
MAX_OVERSUBSCRIPTION = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows: switches on the way between two hosts, and capacity below a leaf for each above it."""

    max_hops: int = MAX_HOPS
    max_oversubscription: float = MAX_OVERSUBSCRIPTION


def hops(
    graph: FabricGraph, count: int | None, path: Sequence[str], limits: Limits, *, complete: bool
) -> Iterator[Finding]:
    """The largest number of switches between two hosts, with the path that has it."""
    expected = f"at most {counted(limits.max_hops, 'switch')} between any two hosts"
    if not complete:
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.UNKNOWN,
            expected=expected,
            actual=f"{graph.source} shows only the switches beside the hosts, not the cables between switches",
            remedy="give the whole fabric: --fabric-from with ibnetdiscover's text, or lldpctl's JSON of switches too",
        )
    elif not graph.attachments and not graph.direct:
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.UNKNOWN,
            expected=expected,
            actual=f"{graph.source} shows no host on a switch",
            remedy="is it the output of a fabric with these hosts? Compare the names",
        )
    elif count is not None:
        over = count > limits.max_hops
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.FAILED if over else Status.OK,
            subject=f"{path[0]} - {path[-1]}",
            action="none",
            expected=expected,
            actual=f"{count}: {' - '.join(path)}",
            remedy="bring both below one spine, or keep a job inside one of them (--limit); --max-hops allows more"
            if over
            else "",
            kind="path",
            hosts=(path[0], path[-1]),
        )


def nothing_known() -> Finding:
    """The finding where no source tells of any switch."""
    return Finding(
        FABRIC,
        "fabric_hops",
        Status.UNKNOWN,
        actual="nothing tells of the switches: no file, no nodectl_switch, no LLDP on the hosts",
        remedy="give --fabric-from with ibnetdiscover's text or lldpctl's JSON, or set nodectl_switch in the inventory",
    )


def parts(groups: Sequence[Sequence[str]]) -> Iterator[Finding]:
    """Hosts between which no way leads."""
    if len(groups) > 1:
        yield Finding(
            FABRIC,
            "fabric_partitioned",
            Status.FAILED,
            expected="a way between any two hosts",
            actual=f"{len(groups)} parts without a way between them: {'; '.join(few(group) for group in groups)}",
            remedy="look at the cables and port states between the parts' switches",
            hosts=tuple(group[0] for group in groups),
        )


def nameless(graph: FabricGraph) -> Iterator[Finding]:
    """Adapters of which nobody can tell whose they are."""
    if graph.nameless:
        yield Finding(
            FABRIC,
            "fabric_nameless",
            Status.UNKNOWN,
            expected="each adapter carries its host's name, and no other adapter the same",
            actual=f"{len(graph.nameless)} without: {few(graph.nameless)}",
            remedy="on that host: restart rdma-ndd, or write the node description (/sys/class/infiniband/*/node_desc)",
        )


def missing(graph: FabricGraph) -> Iterator[Finding]:
    """Hosts of the inventory that the source does not know."""
    for host in graph.missing:
        yield Finding(
            host,
            "fabric_host",
            Status.UNKNOWN,
            expected="a port on a switch",
            actual=f"not in {graph.source}",
            remedy="does it carry another name there? Else look at its ports (ibstat), or leave it out with --limit",
            kind="host",
            hosts=(host,),
        )


def loads(switches: Sequence[SwitchLoad], limits: Limits) -> Iterator[Finding]:
    """Leaves that can take more from their hosts than they can carry away."""
    leaves = [switch for switch in switches if switch.tier == 1 and switch.ratio is not None]
    over = sorted(
        (leaf for leaf in leaves if (leaf.ratio or 0) > limits.max_oversubscription),
        key=lambda switch: -(switch.ratio or 0),
    )
    if over:
        worst = over[0]
        yield Finding(
            FABRIC,
            "fabric_oversubscription",
            Status.WARNING,
            subject=worst.switch,
            expected=f"at most {limits.max_oversubscription:g}:1 of capacity to hosts and to other switches",
            actual=f"{worst.ratio:.2f}:1 ({worst.down_gbit_s:g} Gbit/s below, {worst.up_gbit_s:g} above); "
            f"{len(over)} of {len(leaves)} leaves are over",
            remedy="more uplinks, or jobs inside one leaf; --max-oversubscription if it was built so",
        )
