"""`lldpctl -f json` and `-f json0`: which switch port is at the other end of each interface."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.errors import ParseError

_TOOL = "lldpctl"
_FORWARDS = {"bridge", "router"}
# `100GBaseCR4 …`, `1000BaseTFD - Four-pair …`
_RATE = re.compile(r"(\d{1,6})(G?)base", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LldpNeighbor:
    """One neighbour of one interface; `forwards`: it says that it is a bridge or router, None where it says nothing."""

    interface: str
    chassis: str
    chassis_id: str | None
    port: str | None
    port_description: str | None = None
    forwards: bool | None = None
    gbit_s: float | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lldp:
    """All neighbours, in the order printed; an interface may have several, or none."""

    neighbors: tuple[LldpNeighbor, ...]


def parse_lldp(text: str) -> Lldp:
    """The neighbours of one host or switch."""
    if not text.strip():
        raise ParseError(f"{_TOOL}: the output is empty")
    start = text.find("{")
    try:
        document = json.loads(text[max(start, 0) :])
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{_TOOL}: not JSON: {text.strip()[:80]!r}: {error}", "run lldpctl -f json") from error
    return read_lldp(document)


def read_lldp(document: object) -> Lldp:
    """The neighbours from the parsed document."""
    if not isinstance(document, dict) or "lldp" not in document:
        raise ParseError(f"{_TOOL}: no 'lldp' in the document", "run lldpctl -f json")
    neighbors = []
    for part in _each(document["lldp"]):
        if not isinstance(part, dict):
            raise ParseError(f"{_TOOL}: 'lldp' holds {part!r:.80}, not an object")
        for name, interface in _named(part.get("interface", []), "interface"):
            neighbors.append(_neighbor(name, interface))
    return Lldp(tuple(neighbors))


def _neighbor(name: str, interface: Mapping[str, Any]) -> LldpNeighbor:
    called, chassis = next(_named(interface.get("chassis", {}), "chassis"), ("", {}))
    port = next((each for each in _each(interface.get("port", {})) if isinstance(each, dict)), {})
    chassis_id = _value(chassis.get("id"))
    if not (called or chassis_id):
        raise ParseError(f"{_TOOL}: interface {name}: a neighbour without name and id")
    return LldpNeighbor(
        interface=name,
        chassis=called or chassis_id or "",
        chassis_id=chassis_id,
        port=_value(port.get("id")),
        port_description=_value(port.get("descr")),
        forwards=_forwards(chassis.get("capability")),
        gbit_s=_gbit_s(port.get("auto-negotiation")),
    )


def _named(value: object, what: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, object) of `{"eth0": {…}}`, a list of those, or json0's `{"name": …}`; a lone object is a list of one."""
    for each in _each(value):
        if not isinstance(each, dict):
            raise ParseError(f"{_TOOL}: {what} is {each!r:.80}, not an object")
        name = each.get("name")
        if name is not None or "id" in each:
            yield _value(name) or "", each
            continue
        for key, inner in each.items():
            if not isinstance(inner, dict):
                raise ParseError(f"{_TOOL}: {what} {key!r:.80} is {inner!r:.80}, not an object")
            yield str(key), inner


def _each(value: object) -> list[Any]:
    """A list as it is; what stands alone as a list of one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _value(value: object) -> str | None:
    """The text of `"x"`, `{"type": …, "value": "x"}` or a list of one of those."""
    for each in _each(value):
        text = each.get("value") if isinstance(each, dict) else each
        if isinstance(text, str | int):
            return str(text)
    return None


def _forwards(value: object) -> bool | None:
    told = [each for each in _each(value) if isinstance(each, dict)]
    if not told:
        return None
    return any(each.get("enabled") is True and str(each.get("type")).lower() in _FORWARDS for each in told)


def _gbit_s(value: object) -> float | None:
    for each in _each(value):
        current = _value(each.get("current")) if isinstance(each, dict) else None
        match = _RATE.search(current or "")
        if match:
            return float(match[1]) if match[2] else int(match[1]) / 1000
    return None
