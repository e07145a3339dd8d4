"""Which address and interface of this node a job would use, what names mean here, and which ports are free."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ...common.addresses import family
from .netlink import Interface, interfaces

_RESOLVE_DEADLINE_S = 5.0


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """The facts `names`, `job_address` and `free_ports`."""
    links = interfaces()
    address, link = choose(links, request["interface"], list(candidates(request)), not request["others"])
    hostname = socket.gethostname()
    addresses = resolve([hostname, *request["peers"]])
    return {
        "names": {
            "hostname": hostname,
            "own": addresses[hostname],
            "peers": {name: addresses[name] for name in request["peers"]},
        },
        "job_address": {
            "address": address.split("/")[0],
            "network": str(ipaddress.ip_interface(address).network) if address else "",
            "interface": link.name if link else "",
            "mtu": link.mtu if link else 0,
            "link_up": link is None or (link.up and link.state not in ("down", "lowerlayerdown")),
            "interfaces": [own.name for own in links if usable(own)],
        },
        "free_ports": {"free": free_ports(request["ports"], family(address)), "ephemeral": ephemeral_ports()},
    }


def candidates(request: Dict[str, Any]) -> Iterator[str]:
    """Addresses that may be this node's, the best first: where it was reached, its name, its way to the others."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) == 4:
        yield words[2]
    if request["address"]:
        yield from resolve([request["address"]])[request["address"]] or ()
    for other in request["others"][:8]:
        yield from source_towards(other)


def source_towards(address: str) -> Iterator[str]:
    """The own address from which packets to `address` would leave; nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        yield probe.getsockname()[0]


def choose(
    links: Sequence[Interface], interface: str, wanted: Sequence[str], alone: bool
) -> Tuple[str, Optional[Interface]]:
    """Address (CIDR) and link for the job: of the named interface or network, else the first wanted one held here."""
    if "/" in interface:
        return _in_network(links, ipaddress.ip_network(interface, strict=False))
    if interface:
        named = [link for link in links if link.name == interface]
        held = usable(named[0]) if named else []
        return (held[0] if held else ""), (named[0] if named else None)
    here = {cidr.split("/")[0]: (cidr, link) for link in links for cidr in usable(link)}
    for address in wanted:
        if address in here:
            return here[address]
    if not alone:
        return "", None
    # a job on one host needs no address that others can reach
    return next(iter(here.values()), ("127.0.0.1/8", None))


def _in_network(links: Sequence[Interface], network: Any) -> Tuple[str, Optional[Interface]]:
    for link in links:
        for cidr in usable(link):
            if ipaddress.ip_interface(cidr).ip in network:
                return cidr, link
    return "", None


def usable(link: Interface) -> List[str]:
    """Its addresses that other hosts can reach, IPv4 first."""
    parsed = [ipaddress.ip_interface(cidr) for cidr in link.addresses]
    kept = [one for one in parsed if not one.ip.is_loopback and not one.ip.is_link_local]
    return [str(one) for one in sorted(kept, key=lambda one: one.version)]


def resolve(names: Sequence[str]) -> Dict[str, Optional[List[str]]]:
    """Addresses by name; an empty list: there is no such name; None: no answer in time."""
    answers: Dict[str, Optional[List[str]]] = dict.fromkeys(names)

    def ask(name: str) -> None:
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answers[name] = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        except (OSError, UnicodeError):
            answers[name] = []

    # getaddrinfo has no deadline: a thread that still waits for a dead name server is left behind
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in answers]
    for thread in threads:
        thread.start()
    end = time.monotonic() + _RESOLVE_DEADLINE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(answers)


def free_ports(ports: Sequence[int], ip: int) -> List[int]:
    """Return those on which nobody on this node listens, by TCP or UDP, on any address of IPv4 or IPv6 (`ip`)."""
    return [port for port in ports if _free(ip, socket.SOCK_STREAM, port) and _free(ip, socket.SOCK_DGRAM, port)]


def _free(ip: int, kind: int, port: int) -> bool:
    with socket.socket(ip, kind) as probe:
        try:
            if kind == socket.SOCK_STREAM:
                # a connection of an earlier job that lingers in TIME_WAIT is in nobody's way
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)
        except OSError:
            return False
    return True


def ephemeral_ports() -> Optional[List[int]]:
    """First and last port that the kernel gives to outgoing connections; None where it does not say."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return [int(first), int(last)]
