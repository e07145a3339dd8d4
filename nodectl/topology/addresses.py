"""Addresses of network interfaces, and the networks that they are in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)

from nodectl.facts.network import Nic

Network = IPv4Network | IPv6Network


def interfaces_of(nic: Nic) -> Iterator[IPv4Interface | IPv6Interface]:
    """An interface's addresses with their networks, without link-local ones."""
    for text in nic.addresses:
        try:
            interface = ip_interface(text)
        except ValueError:
            continue
        if not interface.ip.is_link_local:
            yield interface


def networks_of(nic: Nic) -> set[Network]:
    """The networks that it is in; a network of one address is none."""
    return {interface.network for interface in interfaces_of(nic) if interface.network.num_addresses > 1}


def carries(nic: Nic, address: str) -> bool:
    """`address` is one of its own; False for what is not an address, such as a name."""
    wanted = _parsed(address)
    return any(interface.ip == wanted for interface in interfaces_of(nic))


def reaches(nic: Nic, address: str) -> bool:
    """`address` is in one of its networks; False for what is not an address, such as a name."""
    wanted = _parsed(address)
    return wanted is not None and any(wanted in network for network in networks_of(nic))


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None
