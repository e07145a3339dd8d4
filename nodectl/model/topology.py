"""How GPUs, NICs and hosts are wired: inside a host, and over the fabric between hosts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodectl.model.finding import Finding


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One GPU by its name in the matrix (`GPU0`); None if nothing told."""

    name: str
    model: str | None = None
    numa: str | None = None
    cpus: str | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


@dataclass(frozen=True, slots=True)
class NodeNic:
    """One RDMA NIC by its name in the matrix (`NIC0`) and its device; `use` is training, or why it is not."""

    name: str
    device: str
    numa: str | None = None
    state: str | None = None
    rate_gbit_s: float | None = None
    link_layer: str | None = None
    use: str = "training"


@dataclass(frozen=True, slots=True)
class GpuNic:
    """The NIC that a GPU should use; `nic` is None if it has none. `devices` are those of all its ports."""

    nic: str | None
    device: str | None
    link: str | None
    why: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """One host from the inside; `links` is the whole matrix, `recorded` where it comes from a recording."""

    gpus: tuple[NodeGpu, ...]
    nics: tuple[NodeNic, ...]
    links: Mapping[str, Mapping[str, str]]
    gpu_nic: Mapping[str, GpuNic]
    bottlenecks: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()
    recorded: str = ""


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of the fabric."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """One host port on a switch; `nic` is as the source names it, `rail` where it says so."""

    host: str
    nic: str
    switch: str
    gbit_s: float | None = None
    speed: str = ""
    rail: str = ""

    @property
    def label(self) -> str:
        """The rail where the source names it, else the NIC."""
        return self.rail or self.nic


@dataclass(frozen=True, slots=True)
class Trunk:
    """One cable between two switches."""

    a: str
    b: str
    gbit_s: float | None = None
    speed: str = ""


@dataclass(frozen=True, slots=True)
class FabricGraph:
    """Hold what is known of the fabric, and from where.

    `trunks_known` is False if the source sees the hosts' own switches only. `direct` are host pairs without a switch
    between them. `hosts` were seen, `missing` looked for in vain; `nameless` are adapters that carry no host's name.
    """

    source: str
    switches: tuple[Switch, ...]
    attachments: tuple[Attachment, ...]
    trunks: tuple[Trunk, ...] = ()
    direct: tuple[tuple[str, str], ...] = ()
    hosts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    nameless: tuple[str, ...] = ()
    trunks_known: bool = True


@dataclass(frozen=True, slots=True)
class Rail:
    """The host ports that belong together, one a host, and the switches that carry them."""

    name: str
    nics: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SwitchLoad:
    """A switch: its hosts, and its ports towards hosts and away from them."""

    switch: str
    tier: int
    hosts: int
    ports_down: int
    ports_up: int


@dataclass(frozen=True, slots=True)
class Fabric:
    """The verdict: `max_hops` is the largest number of switches between two hosts, `witness` a path that has it."""

    source: str
    switches: tuple[SwitchLoad, ...]
    max_hops: int | None
    witness: tuple[str, ...]
    rank_order: tuple[str, ...]
    rails: tuple[Rail, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class NcclEnvironment:
    """NCCL's environment on one host, each variable with its reason; `unset` says why another one is not needed."""

    values: Mapping[str, str]
    why: Mapping[str, str]
    unset: Mapping[str, str]
    findings: tuple[Finding, ...] = ()


# below one PCIe switch or root port: traffic between the two does not pass the CPU
NEAR = ("PIX", "PXB")
_ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
_MEANING = {
    "PIX": "one PCIe bridge away",
    "PXB": "some PCIe bridges away, without passing the CPU",
    "PHB": "across the CPU's host bridge",
    "NODE": "across host bridges of one NUMA node",
    "SYS": "across the link between sockets",
}


def closeness(link: str) -> int:
    """0 is the closest; NVLink closer than any PCIe; what is not known is farthest."""
    if link.startswith("NV"):
        return -1
    return _ORDER.index(link) if link in _ORDER else len(_ORDER)


def meaning(link: str) -> str:
    """Return the class of link in words, for people."""
    return _MEANING.get(link, "a link of unknown kind")


def between(links: Mapping[str, Mapping[str, str]], a: str, b: str) -> str:
    """Return the class between two, whichever of them has a row; empty if the matrix does not say."""
    return links.get(a, {}).get(b) or links.get(b, {}).get(a) or ""


def joined(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Each name's group, itself among them; of one name if no pair has it."""
    groups = {name: frozenset([name]) for name in names}
    for a, b in pairs:
        if b not in groups[a]:
            group = groups[a] | groups[b]
            groups |= dict.fromkeys(group, group)
    return groups
