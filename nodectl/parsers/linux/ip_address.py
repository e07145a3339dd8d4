"""Reads `ip -json [-s -s] [-d] address show`."""

import json
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError
from nodectl.model.facts import Nic


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface and its index in its own network namespace."""

    index: int
    nic: Nic


def parse_ip_address(text: str) -> tuple[Interface, ...]:
    """All interfaces, the loopback too; ParseError where it is no list of interfaces."""
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(f"ip line {error.lineno}: {error}") from error
    if not isinstance(rows, list):
        raise ParseError(f"ip: {text[:80]!r} is no list")
    return tuple(_interface(row) for row in rows if row)  # ip prints {} for what a filter left out


def _interface(row: Any) -> Interface:
    try:
        addresses = tuple(f"{each['local']}/{each['prefixlen']}" for each in row["addr_info"] if "local" in each)
        # "eth0@if7" is how ip names the near end of a veth pair
        name = row["ifname"].partition("@")[0]
        made = row.get("linkinfo") or {}
        nic = Nic(
            name,
            row["operstate"].lower(),
            row["mtu"],
            row.get("address"),
            addresses,
            kind=made.get("info_kind"),
            carrier="LOWER_UP" in row["flags"] if "flags" in row else None,
            master=row.get("master"),
            mtu_max=row.get("max_mtu") or None,
            bond_mode=(made.get("info_data") or {}).get("mode") if made.get("info_kind") == "bond" else None,
            counters=_counters(row.get("stats64") or row.get("stats") or {}),
        )
        return Interface(row["ifindex"], nic)
    except (KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"ip: interface {str(row)[:200]!r}: {error!r}") from error


def _counters(stats: Any) -> dict[str, int]:
    """`rx_errors`, `tx_dropped`: both directions in one mapping."""
    return {
        f"{way}_{name}": value
        for way in ("rx", "tx")
        for name, value in stats.get(way, {}).items()
        if isinstance(value, int)
    }
