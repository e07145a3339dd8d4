"""Topology as a picture: hosts that are alike once, with GPUs, NICs and matrix; then the fabric by tiers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from html import escape

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.topology import Fabric, NodeGpu, NodeNic, NodeTopology, between
from nodectl.report.topology.text import alike, by_tier, nic_name

_FONT = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"


class Svg:
    """Shapes on a canvas that grows with them."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self.width, self.height = 0.0, 0.0

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "#5b6675", title: str = ""
    ) -> None:
        """Add a rounded rectangle; `title` is shown by a browser where the mouse rests."""
        self._grow(x + width, y + height)
        inner = f"<title>{_text(title)}</title>" if title else ""
        self._shapes.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='4' "
            f"fill='{fill}' stroke='{stroke}'>{inner}</rect>"
        )

    def line(
        self,
        ends: tuple[float, float, float, float],
        *,
        stroke: str,
        width: float = 1.5,
        dash: str = "",
        title: str = "",
    ) -> None:
        """Add a straight line from (x, y) to (x, y)."""
        x1, y1, x2, y2 = ends
        self._grow(max(x1, x2), max(y1, y2))
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        inner = f"<title>{_text(title)}</title>" if title else ""
        self._shapes.append(
            f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{stroke}' "
            f"stroke-width='{width:g}'{dashed}>{inner}</line>"
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        anchor: str = "start",
        fill: str = "#1c2430",
        bold: bool = False,
    ) -> None:
        """One line of text, its foot at `y`."""
        length = len(text) * size * 0.62
        right = {"start": length, "middle": length / 2, "end": 0.0}[anchor]
        self._grow(x + right, y + size / 2)
        weight = " font-weight='bold'" if bold else ""
        place = f"x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}'"
        self._shapes.append(f"<text {place} fill='{fill}'{weight}>{_text(text)}</text>")

    def document(self) -> str:
        """Return the finished SVG document."""
        width, height = f"{self.width + 20:.0f}", f"{self.height + 20:.0f}"
        size = f"width='{width}' height='{height}'"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {width} {height}' {_FONT}>"
        return "\n".join([head, f"<rect {size} fill='#ffffff'/>", *self._shapes, "</svg>", ""])

    def _grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


def _text(text: str) -> str:
    """XML allows neither most control characters nor lone surrogates, escaped or not."""
    return escape("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text), quote=True)


_MARGIN, _ROW, _BOX = 20.0, 34.0, 26.0
_GPU_WIDTH, _GAP, _NIC_WIDTH = 190.0, 150.0, 250.0
_CELL, _CELL_HEIGHT = 46.0, 22.0
_SWITCH_WIDTH, _TIER_HEIGHT = 118.0, 130.0
_COLOURS = {"PIX": "#2e7d32", "PXB": "#66a13a", "PHB": "#c9a227", "NODE": "#e07b39", "SYS": "#c62828"}
_DASHES = {"PHB": "8 3", "NODE": "5 4", "SYS": "2 4"}
_NVLINK, _UNKNOWN = "#3f6fb5", "#9aa3ad"
_SHOWN = 18


def topology_svg(nodes: Mapping[str, NodeTopology], fabric: Fabric | None) -> str:
    """Return the hosts and the fabric as one SVG document."""
    svg = Svg()
    y = _MARGIN
    for hosts, node in alike(nodes):
        y = _node(svg, y, fold(hosts), node) + 2 * _MARGIN
    if fabric is not None:
        _fabric(svg, y, fabric)
    return svg.document()


def _colour(link: str) -> str:
    return _NVLINK if link.startswith("NV") else _COLOURS.get(link, _UNKNOWN)


def _node(svg: Svg, y: float, hosts: str, node: NodeTopology) -> float:
    svg.text(_MARGIN, y + 12, f"{hosts}{f' (recorded: {node.recorded})' if node.recorded else ''}", size=15, bold=True)
    y += 26
    groups: dict[str, list[NodeGpu]] = defaultdict(list)
    for gpu in node.gpus:
        groups[gpu.numa or "?"].append(gpu)
    at_gpu: dict[str, float] = {}
    top = y
    for numa, gpus in groups.items():
        height = len(gpus) * _ROW + 24
        svg.box(_MARGIN, y, _GPU_WIDTH + 20, height, fill="#f3f6fa", stroke="#c3ccd6", title=gpus[0].cpus or "")
        svg.text(_MARGIN + 8, y + 15, f"NUMA {numa}", size=11, fill="#5b6675")
        for number, gpu in enumerate(gpus):
            at = y + 22 + number * _ROW
            at_gpu[gpu.name] = at + _BOX / 2
            slot = f" x{gpu.pcie_width}" if gpu.pcie_width else ""
            narrow = bool(gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max)
            fill = "#f8d7da" if narrow else "#d9e8d2"
            svg.box(_MARGIN + 10, at, _GPU_WIDTH, _BOX, fill=fill, title=gpu.model or gpu.name)
            svg.text(_MARGIN + 20, at + 17, f"{gpu.name}{slot}", bold=True)
        y += height + 10
    bottom = _nics(svg, top, node, at_gpu)
    return _matrix(svg, max(y, bottom) + 10, node)


def _nics(svg: Svg, y: float, node: NodeTopology, at_gpu: Mapping[str, float]) -> float:
    """NICs beside the GPUs that use them; those that nobody uses below."""
    users: dict[str, list[str]] = defaultdict(list)
    for gpu, use in node.gpu_nic.items():
        for nic in node.nics:
            if nic.name == use.nic or nic.device in use.devices:
                users[nic.name].append(gpu)

    def place(nic: NodeNic) -> float:
        return min((at_gpu[gpu] for gpu in users[nic.name]), default=float("inf"))

    x = _MARGIN + _GPU_WIDTH + 20 + _GAP
    for nic in sorted(node.nics, key=place):
        wanted = place(nic)
        at = y if wanted == float("inf") else max(y, wanted - _BOX / 2)
        for gpu in users[nic.name]:
            use = node.gpu_nic[gpu]
            link = use.link or ""
            ends = (_MARGIN + 10 + _GPU_WIDTH, at_gpu[gpu], x, at + _BOX / 2)
            svg.line(ends, stroke=_colour(link), width=2.5, dash=_DASHES.get(link, ""), title=f"{gpu}: {use.why}")
            # near the GPU, where lines do not cross yet
            label = (ends[0] + 0.2 * (ends[2] - ends[0]), ends[1] + 0.2 * (ends[3] - ends[1]) - 4)
            svg.text(*label, link, size=10, anchor="middle", fill=_colour(link))
        training = nic.use == "training"
        svg.box(x, at, _NIC_WIDTH, _BOX, fill="#dbe6f5" if training else "#eceff2", title=nic.use)
        rate = f" {nic.rate_gbit_s:g}G" if nic.rate_gbit_s else ""
        svg.text(x + 8, at + 17, _short(f"{nic_name(nic)}{rate}", 32), fill="#1c2430" if training else "#7b8794")
        y = at + _ROW
    return y


def _matrix(svg: Svg, y: float, node: NodeTopology) -> float:
    names = [gpu.name for gpu in node.gpus]
    columns = names + [nic.name for nic in node.nics]
    for number, column in enumerate(columns):
        svg.text(_MARGIN + 70 + (number + 0.5) * _CELL, y + 14, _short(column, 7), size=10, anchor="middle")
    for row, name in enumerate(names):
        top = y + 20 + row * _CELL_HEIGHT
        svg.text(_MARGIN + 62, top + 15, name, size=10, anchor="end")
        for number, column in enumerate(columns):
            link = "" if column == name else between(node.links, name, column)
            fill = "#eceff2" if column == name else _colour(link)
            svg.box(_MARGIN + 70 + number * _CELL, top, _CELL - 2, _CELL_HEIGHT - 2, fill=fill, stroke="none")
            middle = _MARGIN + 70 + (number + 0.5) * _CELL - 1
            if column != name:
                svg.text(middle, top + 14, link or "?", size=10, anchor="middle", fill="#ffffff")
    return y + 20 + len(names) * _CELL_HEIGHT


def _fabric(svg: Svg, y: float, fabric: Fabric) -> None:
    hops = "unknown" if fabric.max_hops is None else str(fabric.max_hops)
    size = f"{counted(len(fabric.switches), 'switch')}, {counted(len(fabric.rank_order), 'host')}"
    title = f"fabric: {size}, at most {counted(fabric.max_hops or hops, 'switch')} between two"
    svg.text(_MARGIN, y + 12, title, size=15, bold=True)
    tiers = by_tier(fabric)
    ranked = [tiers[tier] for tier in sorted(tiers, key=lambda tier: (tier == 0, -tier))]
    widest = max((len(loads) for loads in ranked), default=1) * (_SWITCH_WIDTH + 12)
    places: dict[str, tuple[float, float]] = {}
    for row, loads in enumerate(ranked):
        step = widest / len(loads)
        for number, load in enumerate(loads):
            places[load.switch] = (_MARGIN + (number + 0.5) * step, y + 40 + row * _TIER_HEIGHT)
    witness = set(zip(fabric.witness, fabric.witness[1:], strict=False))
    for a, b, count in fabric.cables:
        marked = (a, b) in witness or (b, a) in witness
        ends = (*_foot(places[a], places[b]), *_foot(places[b], places[a]))
        width = 3.0 if marked else min(0.6 + 0.3 * count, 2.5)
        svg.line(ends, stroke="#c62828" if marked else "#9aa3ad", width=width, title=f"{a} - {b}: {count}")
    on_leaf = Counter(switch for switches in fabric.homes.values() for switch in switches)
    for load in fabric.switches:
        x, top = places[load.switch]
        fill = "#f5e3c3" if load.tier == 1 else "#e3dcf0"
        svg.box(x - _SWITCH_WIDTH / 2, top, _SWITCH_WIDTH, 30, fill=fill, title=load.switch)
        svg.text(x, top + 19, _short(load.switch, _SHOWN), size=10, anchor="middle")
        if on_leaf[load.switch]:
            ratio = f", {load.ratio:.2f}:1" if load.ratio is not None else ""
            svg.text(
                x, top + 46, f"{counted(on_leaf[load.switch], 'host')}{ratio}", size=10, anchor="middle", fill="#5b6675"
            )


def _foot(here: tuple[float, float], there: tuple[float, float]) -> tuple[float, float]:
    """Return where a cable leaves a switch: at the edge towards the other."""
    x, y = here
    return (x, y + 15) if y == there[1] else (x, y + 30 if there[1] > y else y)


def _short(text: str, most: int) -> str:
    """Return the end of a long text: it tells names of one site apart."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
