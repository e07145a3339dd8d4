"""Models of collectives: nccl-tests' bus bandwidth, and the most of it that links allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodectl.errors import UsageError
from nodectl.model.measurement import Measurement
from nodectl.probes.nccl.fleet import Group, Part, Route

# busbw = algbw x factor(ranks): what the slowest link carries, whatever the number of ranks
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
    "gather": lambda ranks: (ranks - 1) / ranks,
    "scatter": lambda ranks: (ranks - 1) / ranks,
    "sendrecv": lambda ranks: 1.0,
}


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """Hold what a node has, each way and in GB/s: a rank's links to its neighbours inside, and each of its NICs."""

    ranks: int
    inside_gb_s: float
    nics_gb_s: tuple[float, ...] = ()

    @property
    def outside_gb_s(self) -> float:
        """GB/s that all NICs of the node carry together, each way."""
        return sum(self.nics_gb_s)


@dataclass(frozen=True, slots=True)
class ExpectedBusBandwidth:
    """The most that the links allow, in GB/s; `limit` is inside or network, `why` says which sum leads to it."""

    busbw_gb_s: float
    limit: str
    why: str


def expected_busbw(
    collective: str, nodes: Sequence[NodeLinks], part: float = 1.0, algorithm: str | None = None
) -> ExpectedBusBandwidth:
    """Return the ceiling of a collective of large messages over these nodes; of an all_reduce by NCCL's algorithm.

    `part` is what of a link a protocol can fill, such as 0.95 for LL128 or 0.5 for LL. The slowest node counts. An
    algorithm that is not known is a ring or a tree, whichever allows more.
    """
    if collective not in BUS_FACTORS:
        raise UsageError(f"there is no collective '{collective}'", f"one of: {', '.join(BUS_FACTORS)}")
    ranks = sum(node.ranks for node in nodes)
    if ranks < 2 or any(node.ranks < 1 for node in nodes):
        raise UsageError("a collective needs two ranks, and each node one at least", "check the counts")
    if not 0 < part <= 1:
        raise UsageError(f"a protocol fills between 0 and 1 of a link, not {part:g}", "0.95 for LL128, 0.5 for LL")
    if len(nodes) > 1 and any(not node.nics_gb_s for node in nodes):
        raise UsageError("a node without NICs cannot be one of several", "name the rate of its NICs")
    if collective == "all_reduce" and not algorithm:
        possible = [expected_busbw(collective, nodes, part, name) for name in ("RING", "TREE")]
        return max(possible, key=lambda expected: expected.busbw_gb_s)
    if collective == "all_reduce":
        bounds = [bound for node in nodes for bound in _all_reduce(node, len(nodes), ranks, str(algorithm))]
    else:
        bounds = [_inside(collective, node, ranks) for node in nodes if node.ranks > 1]
        bounds += [_outside(collective, node, ranks) for node in nodes if node.ranks < ranks]
    lowest = min(bounds, key=lambda bound: bound.busbw_gb_s)
    return ExpectedBusBandwidth(part * lowest.busbw_gb_s, lowest.limit, lowest.why)


def _all_reduce(node: NodeLinks, nodes: int, ranks: int, algorithm: str) -> list[ExpectedBusBandwidth]:
    """Return the bounds by what leaves a rank inside, and a node outside, as a multiple of the buffer."""
    name = algorithm.upper().replace("_", "")
    ring = 2 * (ranks - 1) / ranks
    # trees: chains in the node, or its switch, and between nodes only one sum a node
    chain, sums = 2 * (node.ranks - 1) / node.ranks, 2 * (nodes - 1) / nodes
    switch = (node.ranks + 1) / node.ranks
    inside, inside_why = ring, "a ring takes each rank's links once"
    outside, outside_why = ring, "rings cross the node over all NICs at once"
    if name in ("NVLS", "NVLSTREE"):
        inside, inside_why = switch, "the switch adds up: a rank sends its data once"
    elif name == "TREE":
        inside, inside_why = chain, "a tree is a chain inside the node"
    if name in ("TREE", "NVLSTREE"):
        outside, outside_why = sums, "a tree carries one sum of each node over all NICs at once"
    elif name.startswith("COLLNET") or name == "NVLS":
        outside, outside_why = 1.0, "the network's switches add up: one sum of each node over all NICs at once"
    bounds = [(node.ranks > 1, node.inside_gb_s, inside, "inside", inside_why)]
    bounds += [(nodes > 1, node.outside_gb_s, outside, "network", outside_why)]
    return [
        ExpectedBusBandwidth(gb_s * ring / sent, limit, why) for is_used, gb_s, sent, limit, why in bounds if is_used
    ]


def _inside(collective: str, node: NodeLinks, ranks: int) -> ExpectedBusBandwidth:
    if collective == "all_to_all":
        # of what a rank sends, only what goes to its neighbours uses the links inside
        value = node.inside_gb_s * (ranks - 1) / (node.ranks - 1)
        return ExpectedBusBandwidth(value, "inside", f"{node.ranks - 1} of {ranks - 1} parts stay in the node")
    return ExpectedBusBandwidth(node.inside_gb_s, "inside", "a ring takes each rank's links once")


def _outside(collective: str, node: NodeLinks, ranks: int) -> ExpectedBusBandwidth:
    if collective == "all_to_all":
        crossing = node.ranks * (ranks - node.ranks)
        value = node.outside_gb_s * (ranks - 1) / crossing
        return ExpectedBusBandwidth(value, "network", f"{crossing} of the node's parts cross its NICs")
    if collective == "sendrecv":
        # only the last rank of a node sends to another one, through the NIC beside it
        return ExpectedBusBandwidth(max(node.nics_gb_s), "network", "one rank's transfer crosses, over one NIC")
    if collective in ("gather", "scatter"):
        # at the root's node everything from the others comes in
        value = node.outside_gb_s * (ranks - 1) / (ranks - node.ranks)
        return ExpectedBusBandwidth(
            value, "network", f"{ranks - node.ranks} of {ranks - 1} parts cross the root's NICs"
        )
    return ExpectedBusBandwidth(node.outside_gb_s, "network", "rings cross the node over all NICs at once")


# what the nccl probe runs
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
# nccl-tests' names of the same
_NAMES = {"alltoall": "all_to_all"}


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Both in GB/s of 1e9 bytes."""

    algbw_gb_s: float
    busbw_gb_s: float


def bandwidth(collective: str, size_bytes: int, ranks: int, duration_s: float) -> Bandwidth:
    """Bandwidths of one operation.

    `size_bytes` is a rank's whole buffer: for all_gather what it ends with, for reduce_scatter and all_to_all what it
    starts with, so ranks times what each rank contributes to, or takes from, one other.
    """
    algbw_gb_s = size_bytes / duration_s / 1e9
    return Bandwidth(algbw_gb_s, algbw_gb_s * BUS_FACTORS[named(collective)](ranks))


def named(collective: str) -> str:
    """nccl-tests' name of a collective as it is called here."""
    return _NAMES.get(collective, collective)


_BITS = 8


def size(measurement: Measurement) -> int:
    """Return the message size of a measurement in bytes."""
    value = measurement.conditions["size_bytes"]
    return value if isinstance(value, int) else 0


def ceiling(
    collective: str, group: Group, backend: str, routes: Mapping[str, Route], algorithm: str | None = None
) -> ExpectedBusBandwidth | None:
    """Return the most that the links allow; None where not all of them are known."""
    nodes = [_links(part, backend, routes.get(part.ready.name), len(group.parts)) for part in group.parts]
    links = [node for node in nodes if node is not None]
    if len(links) < len(nodes) or group.ranks < 2:
        return None
    try:
        # gloo's all_reduce of large messages is a ring
        return expected_busbw(collective, links, algorithm=algorithm if backend == "nccl" else "RING")
    except UsageError:
        return None


def _links(part: Part, backend: str, route: Route | None, hosts: int) -> NodeLinks | None:
    if backend != "nccl":
        # within a host gloo copies memory, and no link says how fast
        speed = part.ready.endpoint.speed_mbit
        return NodeLinks(1, 0.0, (speed / 1e3 / _BITS,)) if speed and part.ranks == 1 else None
    if route is None or route.unknown:
        return None
    if part.ranks > 1 and route.inside_gb_s is None:
        return None
    chosen = part.adapter.split(",") if part.adapter else route.adapters
    nics = tuple(route.rates_gb_s[adapter] for adapter in chosen if adapter in route.rates_gb_s)
    if hosts > 1 and (not nics or len(nics) < len(chosen)):
        return None
    return NodeLinks(part.ranks, route.inside_gb_s or 0.0, nics)
