"""Addresses and networks of interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address, ip_interface

from nodectl.facts.nics import Nic

Network = IPv4Network | IPv6Network


def interfaces_of(nic: Nic) -> Iterator[IPv4Interface | IPv6Interface]:
    """Its addresses with their networks, without those that only reach the same cable."""
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
    """`address` is one of its own."""
    try:
        wanted = ip_address(address)
    except ValueError:
        return False
    return any(interface.ip == wanted for interface in interfaces_of(nic))


def reaches(nic: Nic, address: str) -> bool:
    """`address` is in one of its networks."""
    try:
        wanted = ip_address(address)
    except ValueError:
        return False
    return any(wanted in network for network in networks_of(nic))
