"""The way that NCCL really went, by its own log, and findings where it should have gone another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.nccl_log import (
    NcclChoice,
    NcclLog,
    NcclNet,
    parse_nccl_log,
)
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.base import host_finding
from nodectl.probes.nccl.fleet import NAME, Route, common

# what leaves a host without a network: NVLink between nodes, and reductions in the switches
_NO_NETWORK = ("P2P/MNNVL", "COLLNET")
_SHOWN_WARNINGS = 3
_FABRIC = "look at its RDMA ports (`nodectl facts`), libibverbs, /dev/infiniband and the limit of locked memory"
_TAKE_OUT = "take it out of nccl.conf and the environment (nodectl_nccl_env)"
_GPU_DIRECT = "load nvidia-peermem, or use the open kernel modules (DMA-BUF); then look at ACS and NCCL_NET_GDR_LEVEL"


@dataclass(frozen=True, slots=True)
class HostLog:
    """Hold what one host's ranks logged; None if there is no log that could be read (`unread` says why)."""

    host: str
    log: NcclLog | None
    unread: str = ""


def host_log_of(host: str, lines: Sequence[str]) -> HostLog:
    """Return the log of all ranks of a host."""
    text = "\n".join(lines)
    if not text.strip():
        return HostLog(host, None, "NCCL wrote no log")
    try:
        return HostLog(host, parse_nccl_log(text))
    except ParseError as error:
        return HostLog(host, None, error.message)


def choice_in(line: object) -> NcclChoice | None:
    """Return the choice in one line of the log; None for anything else."""
    if not isinstance(line, str):
        return None
    try:
        return next(iter(parse_nccl_log(line).algorithms), None)
    except ParseError:
        return None


def conditions(logs: Sequence[HostLog]) -> dict[str, object]:
    """Return what goes into each measurement: by host where they differ."""
    paths_of = {log.host: log.log for log in logs if log.log}
    if not paths_of:
        return {}
    return {
        "network": common({host: network(paths) for host, paths in paths_of.items()}),
        "nics": common({host: sorted({net.name for net in log.nets if net.name}) for host, log in paths_of.items()}),
        # None if nothing leaves the host
        "gpu_direct": common(
            {
                host: all(net.gpu_direct for net in paths.nets) if paths.nets else None
                for host, paths in paths_of.items()
            }
        ),
        "transports": sorted({_kind(transport) for paths in paths_of.values() for transport in paths.transports}),
        "channels": common({host: paths.channels for host, paths in paths_of.items()}),
        "nccl_environment": common({host: dict(paths.environment) for host, paths in paths_of.items()}),
    }


def network(paths: NcclLog) -> str | None:
    """Return `NET/IB`, `NET/Socket`, … as used by channels, else as chosen; None within a node."""
    return ", ".join(f"NET/{net}" for net in dict.fromkeys(net.net for net in paths.nets)) or None


def judged(host_log: HostLog, route: Route, *, alone: bool) -> Iterator[Finding]:
    """Yield findings of one host; `alone`: no other takes part."""
    host, paths = host_log.host, host_log.log
    if paths is None:
        remedy = "is NCCL_DEBUG_FILE writable there, and NCCL newer than 2.4?"
        actual = f"not known which way it goes: {host_log.unread}"
        yield _finding(host, Status.UNKNOWN, "nccl log", "", actual, remedy)
        return
    if route.unknown:
        remedy = "`nodectl topology --propose-env` shows what could not be read"
        yield _finding(host, Status.UNKNOWN, "network", "", f"not known what it should be: {route.unknown}", remedy)
    elif not alone:
        yield from _network(host, paths, route)
    by_memory = any(transport.startswith("SHM") for transport in paths.transports)
    if route.nvlink and (by_memory or (alone and paths.nets)):
        actual = f"transfers between GPUs go through {'host memory (SHM)' if by_memory else network(paths)}"
        remedy = "is NCCL_P2P_DISABLE set? look at ACS and the IOMMU, and at `nvidia-smi topo -p2p r`"
        yield _finding(host, Status.FAILED, "peer access", "P2P over NVLink", actual, remedy)
    texts = list(dict.fromkeys(warning.text for warning in paths.warnings))
    for text in texts[:_SHOWN_WARNINGS]:
        yield _finding(host, Status.WARNING, "nccl warning", "", text, "")


def _network(host: str, paths: NcclLog, route: Route) -> Iterator[Finding]:
    """Channels that leave the host; over NVLink between nodes there is nothing to judge."""
    if not paths.nets and not any(transport.startswith(_NO_NETWORK) for transport in paths.transports):
        actual = "the log names no channel that leaves the host, so the network is not proven"
        yield _finding(host, Status.UNKNOWN, "network", "", actual, "is the log cut short? measure once more")
    sockets = [net for net in paths.nets if _is_socket(net)]
    others = [net for net in paths.nets if not _is_socket(net)]
    if sockets and route.rdma:
        over = ", ".join(sorted({net.name or "?" for net in sockets}))
        why = "; ".join(paths.no_rdma) or "the log does not say why"
        expected, actual = f"NET/IB over {', '.join(route.adapters)}", f"NET/Socket over {over}: {why}"
        remedy, given = _FABRIC, paths.environment
        if given.get("NCCL_IB_DISABLE", "0") not in ("0", ""):
            remedy = f"NCCL_IB_DISABLE is set: {_TAKE_OUT}"
        elif given.get("NCCL_NET", "").lower() == "socket":
            remedy = f"NCCL_NET asks for sockets: {_TAKE_OUT}"
        yield _finding(host, Status.FAILED, "network", expected, actual, remedy)
    elif sockets and route.socket:
        wrong = sorted({net.name for net in sockets if net.name and net.name != route.socket})
        if wrong:
            remedy = f"set NCCL_SOCKET_IFNAME: ={route.socket} (`nodectl topology --propose-env`)"
            actual = f"{', '.join(wrong)}"
            yield _finding(host, Status.FAILED, "interface", route.socket, actual, remedy)
    if others and route.rdma:
        yield from _adapters(host, others, route.adapters)
        if route.gpu_direct and not all(net.gpu_direct for net in others):
            why = "; ".join(paths.gpu_direct_off) or "the log does not say why"
            expected = "GPUDirect: each GPU is beside a NIC"
            actual = f"data goes through host memory: {why}"
            yield _finding(host, Status.FAILED, "gpu direct", expected, actual, _GPU_DIRECT)


def _is_socket(net: NcclNet) -> bool:
    """Socket, FastSocket: what carries data through the kernel, not by RDMA."""
    return "socket" in net.net.casefold()


def _adapters(host: str, nets: Sequence[NcclNet], wanted: Sequence[str]) -> Iterator[Finding]:
    used = {part for net in nets for part in (net.name or "").split("+") if part}
    if not used:
        return
    remedy = "set NCCL_IB_HCA as `nodectl topology --propose-env` shows"
    strange, idle = sorted(used - set(wanted)), [wish for wish in wanted if wish not in used]
    expected = f"{', '.join(wanted)}"
    if strange:
        actual = f"{', '.join(strange)}, which should not carry training"
        yield _finding(host, Status.FAILED, "adapters", expected, actual, remedy)
    if idle:
        actual = f"{', '.join(idle)} carries nothing of it"
        yield _finding(host, Status.WARNING, "adapters", expected, actual, remedy)


def _kind(transport: str) -> str:
    # `NET/IB/0/GDRDMA` of any device is one kind
    parts = transport.split("/")
    return f"NET/{parts[1]}" + ("/GDRDMA" if "GDRDMA" in parts else "") if parts[0] == "NET" else "/".join(parts[:2])


def _finding(host: str, status: Status, subject: str, expected: str, actual: str, remedy: str) -> Finding:
    return host_finding(NAME, host, status, actual, remedy, subject=subject, expected=expected)


def sockets_judged(host: str, used: Mapping[str, int], wanted: str) -> Iterator[Finding]:
    """Yield findings where gloo's sockets are on other interfaces than they should be."""
    if not used:
        actual = "its sockets could not be seen, so the interface is not proven"
        yield _finding(host, Status.UNKNOWN, "interface", wanted, actual, "is /proc/net/tcp readable there?")
    elif wanted and set(used) != {wanted}:
        actual = ", ".join(f"{name} ({count} connections)" for name, count in sorted(used.items()))
        remedy = "look at the routes between the hosts (`ip route get`), and name the network with --interface"
        yield _finding(host, Status.FAILED, "interface", wanted, actual, remedy)
