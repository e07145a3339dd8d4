"""Compares the names in a host's /etc/hosts with the addresses that the fleet's hosts have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from nodectl.checks.check import Check, Subject
from nodectl.checks.network.nics import nics_of
from nodectl.common.few import few
from nodectl.facts.host_files import HostFiles
from nodectl.model.finding import Finding
from nodectl.model.status import Status

HOSTS_FILE = Check(
    "fleet_hosts_file",
    fires="warning: an address that the host of that name does not have; that host's, where most say so",
    expected="the addresses that those hosts have",
    remedy="correct /etc/hosts there, or leave names to the name service; launch itself passes addresses",
)
_LOST = "give it that address again (`ip address` there), or correct /etc/hosts on the others"
Book = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A host's names: `book` has the addresses of each name in its /etc/hosts, `own` its own addresses."""

    book: Mapping[str, Book]
    own: frozenset[str]


def named_by(host: Subject, address: str) -> Named | None:
    """Return the host's names for others and its addresses; `address` is the inventory's, perhaps behind a NAT."""
    files = host.fact("host_files", HostFiles)
    nics = nics_of(host).values()
    if files is None or not nics:
        return None
    local_addresses = {cidr.partition("/")[0] for nic in nics for cidr in nic.addresses}
    return Named(files.addresses, frozenset(map(_plain, local_addresses | {address})))


def misnamed(fleet: Mapping[str, Named]) -> Iterator[Finding]:
    """Yield each host whose /etc/hosts gives another host's name an address that this host does not have."""
    copies = Counter(named.own for named in fleet.values())
    wrong: dict[str, list[str]] = {host: [] for host in fleet}
    for name, peer in _peers(fleet).items():
        peer_addresses = fleet[peer].own
        # hosts with identical addresses are copies of a recording: their addresses prove nothing
        if copies[peer_addresses] > 1:
            continue
        books = {host: named.book[name] for host, named in fleet.items() if name in named.book and host != peer}
        lost, number = next(iter(Counter(books.values()).most_common(1)), ((), 0))
        if number < 2 or 2 * number <= len(books) or not _foreign(lost, peer_addresses):
            lost = ()
        if lost:  # most agree on it: the named host has lost it, and they are not to blame
            yield _finding(peer, f"{few(list(books))} have {name} as {few(lost)} in /etc/hosts, and it does not", _LOST)
        for host, book in books.items():
            if book != lost and (foreign := _foreign(book, peer_addresses)):
                wrong[host].append(f"{name} is {few(foreign)} there, and {peer} has no such address")
    yield from (_finding(host, few(reasons), HOSTS_FILE.remedy) for host, reasons in wrong.items() if reasons)


def _finding(host: str, actual: str, remedy: str) -> Finding:
    return Finding(host, HOSTS_FILE.id, Status.WARNING, "", "none", HOSTS_FILE.expected, actual, remedy)


def _foreign(book: Book, peer_addresses: frozenset[str]) -> Book:
    return tuple(address for address in book if _plain(address) not in peer_addresses)


def _peers(fleet: Mapping[str, Named]) -> dict[str, str]:
    """Return the names that mean one host: its inventory name, and the part before the first dot if it is unique."""
    short = Counter(host.partition(".")[0] for host in fleet)
    names = {host.partition(".")[0]: host for host in fleet if short[host.partition(".")[0]] == 1}
    names |= {host: host for host in fleet}
    return {name: host for name, host in names.items() if not name.isdigit() and not name.startswith("localhost")}


def _plain(address: str) -> str:
    try:
        return str(ip_address(address.partition("%")[0]))
    except ValueError:
        return address
