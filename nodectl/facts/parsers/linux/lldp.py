"""`lldpctl -f json`: which switch port is at the other end of each interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import ParseError

_TOOL = "lldpctl"
_FORWARDS = {"bridge", "router"}
# `100GBaseCR4 …`, `1000BaseTFD - Four-pair …`
_RATE = re.compile(r"(\d{1,6})(G?)base", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LldpNeighbor:
    """One neighbour of one interface; `forwards`: it says that it is a bridge or router, None if it says nothing."""

    interface: str
    chassis: str
    port: str | None
    port_description: str | None = None
    forwards: bool | None = None
    gbit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lldp:
    """All neighbours, in the order printed; an interface may have several, or none."""

    neighbors: tuple[LldpNeighbor, ...]


def parse_lldp(text: str) -> Lldp:
    """Read the neighbours of one host or switch; ParseError for another document."""
    if not text.strip():
        raise ParseError(f"{_TOOL}: the output is empty")
    start = text.find("{")
    try:
        document = bounded_json.loads(text[max(start, 0) :])
    except ValueError as error:
        raise ParseError(f"{_TOOL}: not JSON: {text.strip()[:80]!r}: {error}", "run lldpctl -f json") from error
    try:
        # one object of all interfaces, or a list of objects of one each
        parts = _as_list(document["lldp"].get("interface", []))
        return Lldp(tuple(_neighbor(name, interface) for part in parts for name, interface in part.items()))
    except (AttributeError, KeyError, TypeError) as error:
        raise ParseError(f"{_TOOL}: no 'lldp' with its interfaces: {error!r}", "run lldpctl -f json") from error


def _neighbor(name: str, interface: Mapping[str, Any]) -> LldpNeighbor:
    named, port = interface.get("chassis", {}), interface.get("port", {})
    # below its name, where it has one
    chassis_name, chassis = ("", named) if "id" in named else next(iter(named.items()), ("", dict[str, Any]()))
    neighbor = chassis_name or _text(chassis.get("id", {}).get("value"))
    if not neighbor:
        raise ParseError(f"{_TOOL}: interface {name}: a neighbour without name and id")
    capabilities = _as_list(chassis.get("capability", []))
    enabled = {str(item.get("type")).lower() for item in capabilities if item.get("enabled") is True}
    rate = _RATE.search(str(port.get("auto-negotiation", {}).get("current")))
    return LldpNeighbor(
        interface=name,
        chassis=neighbor,
        port=_text(port.get("id", {}).get("value")),
        port_description=_text(port.get("descr")),
        forwards=bool(enabled & _FORWARDS) if capabilities else None,
        gbit_s=float(rate[1]) / (1 if rate[2] else 1000) if rate else None,
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
