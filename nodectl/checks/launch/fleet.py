"""What the hosts of a job must agree on, and which of them are the odd ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_low

from nodectl.checks.launch.host import is_loopback
from nodectl.checks.system.clock import CLOCK_FAILED_S_LIMIT, CLOCK_WARNING_S_LIMIT
from nodectl.model.finding import Finding
from nodectl.model.preflight import NodeInfo, PreflightRequest
from nodectl.model.status import Status

_CLOCK_WARNING_S, _CLOCK_FAILED_S = CLOCK_WARNING_S_LIMIT.value, CLOCK_FAILED_S_LIMIT.value
_SHOWN = 4


def fleet_findings(nodes: Sequence[NodeInfo], request: PreflightRequest) -> Iterator[Finding]:
    """One finding a check and host; a single host has nobody to disagree with."""
    yield from ports(nodes, request)
    if len(nodes) < 2:
        return
    yield from unique_names(nodes)
    yield from peer_names(nodes)
    yield from equal(nodes, "network", lambda node: node.network, Status.WARNING, _NETWORK_REMEDY)
    yield from equal(nodes, "mtu", lambda node: str(node.mtu), Status.WARNING, _MTU_REMEDY)
    yield from equal(nodes, "launcher_version", lambda node: node.launcher_sha256[:12], Status.FAILED, _VERSION_REMEDY)
    if request.venv is not None:
        yield from equal(nodes, "python", lambda node: minor(node.venv_python), Status.FAILED, _VERSION_REMEDY)
        yield from equal(nodes, "torch", lambda node: node.torch, Status.FAILED, _VERSION_REMEDY)
        yield from equal(nodes, "nccl", lambda node: node.nccl or "none", Status.FAILED, _VERSION_REMEDY)
    yield from clocks(nodes)


_VERSION_REMEDY = "run `nodectl provision` on all hosts of the job, with one stack profile"
_NETWORK_REMEDY = "choose an interface in one network with --interface, or make sure that the networks are routed"
_MTU_REMEDY = "set one MTU on all hosts and switch ports: large packets vanish where one is smaller"


def equal(
    nodes: Sequence[NodeInfo], check: str, value: Callable[[NodeInfo], str], otherwise: Status, remedy: str
) -> Iterator[Finding]:
    """All hosts have the same; where a majority agrees only the others are at fault, else everyone is.

    An empty value says nothing: the check that owns it has already told.
    """
    values = {node.host: value(node) for node in nodes if value(node)}
    reference, odd = odd_ones(values)
    for host, actual in values.items():
        wrong = host in odd
        expected = reference or f"one for all; there are {spread(values)}"
        yield Finding(
            host,
            check,
            otherwise if wrong else Status.OK,
            expected=expected,
            actual=actual,
            remedy=remedy if wrong else "",
        )


def odd_ones(values: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """The value of the majority and the hosts with another one; without a majority, "" and every host."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return (counts[0][0] if counts else ""), frozenset()
    value, count = counts[0]
    if 2 * count <= len(values):
        return "", frozenset(values)
    return value, frozenset(host for host, other in values.items() if other != value)


def spread(values: Mapping[str, str]) -> str:
    """`2.1 on a, b; 2.2 on c`."""
    by_value: dict[str, list[str]] = {}
    for host, value in values.items():
        by_value.setdefault(value, []).append(host)
    return "; ".join(f"{value} on {few(hosts)}" for value, hosts in by_value.items())


def few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def minor(version: str) -> str:
    """3.11 of 3.11.7."""
    return ".".join(version.split(".")[:2])


def unique_names(nodes: Sequence[NodeInfo]) -> Iterator[Finding]:
    """Two hosts of one name take each other's place in rendezvous and in logs."""
    holders: dict[str, list[str]] = {}
    for node in nodes:
        holders.setdefault(node.hostname, []).append(node.host)
    for node in nodes:
        others = [host for host in holders[node.hostname] if host != node.host]
        yield Finding(
            node.host,
            "hostname",
            Status.FAILED if others else Status.OK,
            node.hostname,
            expected="a name of its own",
            actual=f"{few(others)} has it too" if others else node.hostname,
            remedy=f"`hostnamectl set-hostname` on {node.host}, or list one machine once in the inventory"
            if others
            else "",
        )


def peer_names(nodes: Sequence[NodeInfo]) -> Iterator[Finding]:
    """A name that means different things on different hosts; a name that nobody knows is an inventory alias."""
    named = list(dict.fromkeys(name for node in nodes for name in node.peers))
    meanings = {name: {node.host: meaning(node, name) for node in nodes} for name in named}
    wrong: dict[str, list[str]] = {node.host: [] for node in nodes}
    for name, by_host in meanings.items():
        _, odd = odd_ones({host: value for host, value in by_host.items() if value is not None})
        for host in odd:
            wrong[host].append(f"{name} means {by_host[host]}")
    for node in nodes:
        yield _peer_finding(node, wrong[node.host])


def _peer_finding(node: NodeInfo, wrong: Sequence[str]) -> Finding:
    expected = "names of the job's hosts mean the same on all of them"
    silent = [name for name, addresses in node.peers.items() if addresses is None]
    if wrong:
        return Finding(
            node.host,
            "peer_names",
            Status.WARNING,
            expected=expected,
            actual="; ".join(wrong[:_SHOWN]),
            remedy="make /etc/hosts or the name service equal; the launch script itself passes addresses",
        )
    if silent:
        return Finding(
            node.host,
            "peer_names",
            Status.UNKNOWN,
            expected=expected,
            actual=f"no answer in time for {few(silent)}",
            remedy="mend /etc/resolv.conf: a job that looks names up waits there too",
        )
    return Finding(node.host, "peer_names", Status.OK, expected=expected, actual="they do")


def meaning(node: NodeInfo, name: str) -> str | None:
    """Addresses of `name` on that host as text; None where there was no answer, or loopback for its own name."""
    addresses = node.peers.get(name)
    if addresses is None or (name == node.host and any(is_loopback(address) for address in addresses)):
        return None
    return ", ".join(sorted(addresses)) or "nothing"


def clocks(nodes: Sequence[NodeInfo]) -> Iterator[Finding]:
    """torchrun compares times of one host with the clock of another."""
    known = [node.clock_offset_s for node in nodes if node.clock_offset_s is not None]
    for node in nodes:
        yield _clock(
            node, [offset - node.clock_offset_s for offset in known] if node.clock_offset_s is not None else []
        )


def _clock(node: NodeInfo, to_others_s: Sequence[float]) -> Finding:
    expected = f"within {_CLOCK_WARNING_S:g} s of the others"
    if not to_others_s:
        return Finding(
            node.host,
            "clock",
            Status.UNKNOWN,
            expected=expected,
            actual="its time did not arrive",
            remedy=f"run `date` on {node.host}",
        )
    # against one real host in the middle, so that of two hosts both show the whole difference
    middle_s = median_low(to_others_s)
    off_s = max(to_others_s, key=abs) if len(to_others_s) == 2 else middle_s
    status = Status.FAILED if abs(off_s) >= _CLOCK_FAILED_S else Status.WARNING
    if abs(off_s) < _CLOCK_WARNING_S:
        return Finding(node.host, "clock", Status.OK, expected=expected, actual=f"{abs(off_s):.2f} s")
    return Finding(
        node.host,
        "clock",
        status,
        expected=expected,
        actual=f"{abs(off_s):.1f} s {'behind' if off_s > 0 else 'ahead'}",
        remedy=f"synchronise the clock of {node.host} (chrony): `chronyc tracking`",
    )


def ports(nodes: Sequence[NodeInfo], request: PreflightRequest) -> Iterator[Finding]:
    """The same few ports must be free on every host."""
    free = [port for port in request.candidate_ports if all(port in node.free_ports for node in nodes)]
    enough = len(free) >= request.ports_needed
    for node in nodes:
        taken = [port for port in request.candidate_ports if port not in node.free_ports]
        at_fault = not enough and bool(taken)
        yield Finding(
            node.host,
            "ports",
            Status.FAILED if at_fault else Status.OK,
            expected=f"{request.ports_needed} of {len(request.candidate_ports)} tried ports free on all hosts",
            actual=f"taken here: {few([str(port) for port in taken])}" if taken else "all free",
            remedy="launch again, other ports will be tried; `ss -lntup` shows who listens" if at_fault else "",
        )
