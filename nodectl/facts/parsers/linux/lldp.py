"""`lldpctl -f json` and `-f json0`: which switch port is at the other end of each interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    """Read the neighbours of one host or switch."""
    if not text.strip():
        raise ParseError(f"{_TOOL}: the output is empty")
    start = text.find("{")
    try:
        document = bounded_json.loads(text[max(start, 0) :])
    except ValueError as error:
        raise ParseError(f"{_TOOL}: not JSON: {text.strip()[:80]!r}: {error}", "run lldpctl -f json") from error
    return read_lldp(document)


def read_lldp(document: object) -> Lldp:
    """Read the neighbours from the parsed document."""
    if not isinstance(document, dict) or "lldp" not in document:
        raise ParseError(f"{_TOOL}: no 'lldp' in the document", "run lldpctl -f json")
    neighbors = []
    for part in _as_list(document["lldp"]):
        if not isinstance(part, dict):
            raise ParseError(f"{_TOOL}: 'lldp' holds {part!r:.80}, not an object")
        for name, interface in _objects(part.get("interface", []), "interface"):
            neighbors.append(_neighbor(name, interface))
    return Lldp(tuple(neighbors))


def _neighbor(name: str, interface: Mapping[str, Any]) -> LldpNeighbor:
    name_of_chassis, chassis = next(_objects(interface.get("chassis", {}), "chassis"), ("", {}))
    port = next((item for item in _as_list(interface.get("port", {})) if isinstance(item, dict)), {})
    chassis_id = _value(chassis.get("id"))
    if not (name_of_chassis or chassis_id):
        raise ParseError(f"{_TOOL}: interface {name}: a neighbour without name and id")
    return LldpNeighbor(
        interface=name,
        chassis=name_of_chassis or chassis_id or "",
        chassis_id=chassis_id,
        port=_value(port.get("id")),
        port_description=_value(port.get("descr")),
        forwards=_forwards(chassis.get("capability")),
        gbit_s=_gbit_s(port.get("auto-negotiation")),
    )


def _objects(value: object, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, object) of `{"eth0": {…}}`, a list of those, or json0's `{"name": …}`; a lone object is a list of one."""
    for item in _as_list(value):
        if not isinstance(item, dict):
            raise ParseError(f"{_TOOL}: {kind} is {item!r:.80}, not an object")
        name = item.get("name")
        if name is not None or "id" in item:
            yield _value(name) or "", item
            continue
        for key, inner in item.items():
            if not isinstance(inner, dict):
                raise ParseError(f"{_TOOL}: {kind} {key!r:.80} is {inner!r:.80}, not an object")
            yield str(key), inner


def _as_list(value: object) -> list[Any]:
    """Return a list as it is; what stands alone as a list of one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _value(value: object) -> str | None:
    """Return the text of `"x"`, `{"type": …, "value": "x"}` or a list of one of those."""
    for item in _as_list(value):
        text = item.get("value") if isinstance(item, dict) else item
        if isinstance(text, str | int):
            return str(text)
    return None


def _forwards(value: object) -> bool | None:
    capabilities = [item for item in _as_list(value) if isinstance(item, dict)]
    if not capabilities:
        return None
    return any(item.get("enabled") is True and str(item.get("type")).lower() in _FORWARDS for item in capabilities)


def _gbit_s(value: object) -> float | None:
    for item in _as_list(value):
        current = _value(item.get("current")) if isinstance(item, dict) else None
        match = _RATE.search(current or "")
        if match:
            return float(match[1]) if match[2] else int(match[1]) / 1000
    return None
