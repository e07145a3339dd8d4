"""Which address and interface of this node a job would use, what names mean here, and which ports are free."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ...common.sockets import family

_RESOLVE_DEADLINE_S = 5.0


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts `names`, `job_address` and `free_ports`."""
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
    """Yield the own address from which packets to `address` would leave; nothing is sent."""
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


_GETLINK, _GETADDR, _DONE, _ERROR = 18, 22, 3, 2
_REQUEST_DUMP = 0x301
_UP = 1
_IFLA_IFNAME, _IFLA_MTU, _IFLA_OPERSTATE = 3, 4, 16
_OPERSTATE_NAMES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")


class Interface(NamedTuple):
    """An interface; `addresses` in CIDR form, as the kernel lists them."""

    name: str
    up: bool
    state: str
    mtu: int
    addresses: List[str]


def interfaces() -> List[Interface]:
    """Every interface of this network namespace."""
    links: Dict[int, Interface] = {}
    for body in _dump(_GETLINK):
        _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
        fields = dict(_attributes(body[16:]))
        state = fields.get(_IFLA_OPERSTATE, b"\0")[0]
        name = fields[_IFLA_IFNAME].rstrip(b"\0").decode(errors="replace")
        mtu = struct.unpack("=I", fields[_IFLA_MTU])[0]
        links[index] = Interface(name, bool(flags & _UP), _OPERSTATE_NAMES[min(state, 6)], mtu, [])
    for body in _dump(_GETADDR):
        family, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
        fields = dict(_attributes(body[8:]))
        raw = fields.get(_IFA_LOCAL) or fields.get(_IFA_ADDRESS)
        if raw and index in links and family in (socket.AF_INET, socket.AF_INET6):
            links[index].addresses.append(f"{socket.inet_ntop(family, raw)}/{prefix}")
    return list(links.values())


def _dump(kind: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(5)
        kernel.bind((0, 0))
        kernel.send(_HEADER.pack(_HEADER.size + 16, kind, _REQUEST_DUMP, 1, 0) + b"\0" * 16)
        while True:
            for message, body in _messages(kernel.recv(1 << 17)):
                if message == _DONE:
                    return
                if message == _ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "netlink refused the request")
                yield body


def _messages(data: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind = struct.unpack_from("=IH", data, at)
        yield kind, data[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + size]
        at += (size + 3) & ~3
