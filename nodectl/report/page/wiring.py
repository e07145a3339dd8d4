"""How hosts are wired: the drawing of those that are alike once, and of the fabric, each with its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.links import between
from nodectl.model.status import Status
from nodectl.model.topology import Fabric, NodeTopology
from nodectl.report.page.blocks import Block, Cell, Drawing, Mark, Number, Section, Table, Text
from nodectl.report.page.content import Wired
from nodectl.report.topology.svg import topology_svg
from nodectl.report.topology.text import alike

# of more kinds of wiring the largest groups are drawn: a fleet of so many kinds is told by its findings
_MOST_KINDS = 4
# a drawing of more switches is wider than any paper
_MOST_SWITCHES = 64


def wiring_section(wired: Sequence[Wired]) -> Section:
    """Drawings and tables of all that is known; nothing where no host with GPUs was seen."""
    missing = "No host with GPUs was seen: `nodectl topology`, or `nodectl report` without `--no-hosts`."
    return Section("wiring", "Wiring", tuple(chain.from_iterable(map(_blocks, wired))), missing)


def _blocks(one: Wired) -> Iterator[Block]:
    kinds = alike(one.nodes)
    for hosts, node in kinds[:_MOST_KINDS]:
        names = f"{fold(hosts)} ({counted(len(hosts), 'host')}, wired alike)" if len(hosts) > 1 else hosts[0]
        # the drawing has one name above it, and the caption all
        svg = topology_svg({hosts[0]: replace(node, recorded="")}, None)
        yield Drawing(f"Inside of {names}", _words(node), svg, one.origin)
        yield _uses(node, names, one)
    left = [host for hosts, _ in kinds[_MOST_KINDS:] for host in hosts]
    if left:
        yield Text(f"{counted(len(kinds) - _MOST_KINDS, 'more kind')} of wiring, not drawn here: {fold(left)}.")
    if one.fabric is not None and one.fabric.switches:
        yield from _fabric(one.fabric, one)


def _words(node: NodeTopology) -> str:
    uses = [
        f"{gpu.name} uses {use.device or use.nic} over {use.link or 'an unknown link'}"
        for gpu in node.gpus
        if (use := node.gpu_nic.get(gpu.name)) is not None and use.nic is not None
    ]
    parts = f"{counted(len(node.gpus), 'GPU')} and {counted(len(node.nics), 'RDMA NIC')}"
    return f"Drawing of {parts} by NUMA node. {'; '.join(uses)}."


def _uses(node: NodeTopology, names: str, one: Wired) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for gpu in node.gpus:
        use = node.gpu_nic.get(gpu.name)
        is_narrow = bool(gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max)
        slot = f"x{gpu.pcie_width}" if gpu.pcie_width else ""
        others = sorted({between(node.links, gpu.name, other.name) or "?" for other in node.gpus if other is not gpu})
        rows.append(
            (
                gpu.name,
                gpu.model or "",
                gpu.numa or "",
                Mark(Status.WARNING, f"{slot} of x{gpu.pcie_width_max}") if is_narrow else slot,
                ", ".join(others),
                (use.device or use.nic or "none") if use else "none",
                use.link or "" if use else "",
                use.why if use else "",
            )
        )
    columns = ("GPU", "Model", "NUMA node", "PCIe", "To other GPUs", "NIC", "Link", "Why")
    return Table(f"GPUs of {names}", columns, rows, one.origin)


def _fabric(fabric: Fabric, one: Wired) -> Iterator[Block]:
    hops = "unknown" if fabric.max_hops is None else counted(fabric.max_hops, "switch")
    size = f"{counted(len(fabric.switches), 'switch')}, {counted(len(fabric.rank_order), 'host')}"
    summary = f"The fabric, told by {fabric.source}: {size}, at most {hops} between two hosts."
    if len(fabric.switches) <= _MOST_SWITCHES:
        yield Drawing(summary, f"{summary} Its switches are in the table below.", topology_svg({}, fabric), one.origin)
    rows: list[tuple[Cell, ...]] = [
        (
            load.switch,
            Number(str(load.tier)),
            Number(str(load.hosts)),
            Number(_rate(load.down_gbit_s)),
            Number(_rate(load.up_gbit_s)),
            Number("" if load.ratio is None else f"{load.ratio:.2f} : 1"),
        )
        for load in fabric.switches
    ]
    columns = ("Switch", "Tier", "Hosts", "Down Gbit/s", "Up Gbit/s", "Oversubscription")
    yield Table("Switches and their load", columns, rows, one.origin)


def _rate(gbit_s: float | None) -> str:
    return "" if gbit_s is None else f"{gbit_s:,.0f}"
