"""The fabric's graph from outputs of ibnetdiscover and lldpctl: in an operator's file, or recorded on the hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.common import bounded_json
from nodectl.errors import NodectlError, ParseError, UsageError
from nodectl.model.host import Host
from nodectl.model.recording import Command
from nodectl.model.topology import FabricGraph
from nodectl.parsers.linux.lldp import Lldp, parse_lldp, read_lldp
from nodectl.topology.fabric.from_ibnetdiscover import ib_graph
from nodectl.topology.fabric.from_lldp import lldp_graph

_MAX_BYTES = 256 << 20
_RECORDED = "lldpctl.out"
# what a host is asked about the fabric
LLDP = Command("lldpctl", ("lldpctl", "-f", "json"), hardware=True)


def graph_from(path: Path, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]]) -> FabricGraph:
    """The graph in a file, or a folder with lldpctl's JSON of several; of `hosts` only, where it knows one of them.

    `guids` are the hosts' own adapters (GUID → host and device), for those that carry no name in the fabric.
    """
    graph = _graph(path, hosts, guids)
    if graph.hosts or not hosts:
        return graph
    # of a fabric with other names the whole is shown, and that nobody of the inventory was found in it
    return replace(_graph(path, (), guids), missing=tuple(host.name for host in hosts))


def _graph(path: Path, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]]) -> FabricGraph:
    try:
        if path.is_dir():
            return lldp_graph(_folder(path), hosts, str(path))
        text = _text(path)
        if text.lstrip().startswith("{"):
            return lldp_graph(_lldp_file(path, text), hosts, str(path))
        from nodectl.parsers.rdma.ibnetdiscover import parse_ibnetdiscover

        return ib_graph(parse_ibnetdiscover(text), hosts, guids, str(path))
    except ParseError as error:
        raise ParseError(f"{path}: {error.message}", error.remedy or _remedy()) from error


def _remedy() -> str:
    return "give ibnetdiscover's text, lldpctl -f json of one host, or a folder with <host>.json of several"


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise NodectlError(f"{path}: larger than {_MAX_BYTES >> 20} MiB", _remedy())
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _remedy()) from error


def _lldp_file(path: Path, text: str) -> dict[str, Lldp]:
    """One host's own, named like the file, or one object with a document for each host."""
    try:
        document = bounded_json.loads(text)
    except ValueError as error:
        raise ParseError(f"lldpctl: not JSON: {error}") from error
    if "lldp" in document:
        return {path.stem: read_lldp(document)}
    return {str(name): read_lldp(host_document) for name, host_document in document.items()}


def _folder(path: Path) -> dict[str, Lldp]:
    """Return what each host of a folder saw by LLDP: from `<host>.json`, or a recording's `<host>/lldpctl.out`."""
    files = {file.stem: file for file in sorted(path.glob("*.json"))}
    files |= {file.parent.name: file for file in sorted(path.glob(f"*/{_RECORDED}"))}
    if not files:
        raise UsageError(f"{path}: neither <host>.json nor <host>/{_RECORDED} in it", _remedy())
    return {name: _parsed(file.name, _text(file)) for name, file in files.items()}


def _parsed(name: str, text: str) -> Lldp:
    try:
        return parse_lldp(text)
    except ParseError as error:
        raise ParseError(f"{name}: {error.message}", error.remedy) from error


def recorded_graph(outputs: Mapping[str, str], hosts: Sequence[Host]) -> FabricGraph | None:
    """The graph from lldpctl's outputs by host; None where no host knows a neighbour."""
    neighbors = {host: _parsed(host, text) for host, text in outputs.items()}
    if any(lldp.neighbors for lldp in neighbors.values()):
        return lldp_graph(neighbors, hosts, "lldpctl on the hosts")
    return None
