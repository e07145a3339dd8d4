"""Reads `mlxlink` and `mstlink` (-m, -c, -e), text or `--json`: a port's state, its bit errors and its optics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.json_values import find_document
from nodectl.facts.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.facts.parsers.text import Line, real, unreadable

TOOL = "mlxlink"
_ROW = re.compile(r"(?P<label>[A-Z][^:]{1,80}?)\s*:\s*(?P<value>.*)")
_FAILURE = re.compile(r"-E-|Error:|[Cc]ommand not found|[Pp]ermission denied|No such (?:file|device)")
_NONE = ("", "n/a", "[n/a]", "none")


@dataclass(frozen=True, slots=True)
class Mlxlink:
    """A port; None for what is not printed. `values` has all that is, by label, as printed; lists joined by commas."""

    state: str | None
    physical_state: str | None
    speed: str | None
    width: str | None
    fec: str | None
    recommendation: str | None
    raw_ber: float | None
    effective_ber: float | None
    symbol_ber: float | None
    effective_errors: int | None
    link_downs: int | None
    temperature_c: float | None
    vendor: str | None
    part_number: str | None
    serial_number: str | None
    values: Mapping[str, str]


def parse_mlxlink(text: str) -> Mlxlink:
    """Read the output; raise ParseError for a rate or count that is no number, and where no port's state is printed."""
    lines = list(rows_of(text, TOOL))
    document = find_document(text, TOOL, lambda part: isinstance(part, dict) and isinstance(part.get("result"), dict))
    values = _of_json(document) if document is not None else _of_text(lines)
    if "State" not in values:
        raise nothing_found(TOOL, "state of a port", lines, _FAILURE)

    def word(*labels: str) -> str | None:
        value = next((values[label] for label in labels if label in values), "")
        return None if value.lower() in _NONE else value

    def number(*labels: str) -> float | None:
        value = word(*labels)
        # `45 [-5..75]`: the value, and its limits
        figure = None if value is None else real(value.split()[0])
        if value is not None and figure is None:
            raise unreadable(TOOL, Line(0, f"{labels[0]}: {value}"), "no number")
        return figure

    def count(*labels: str) -> int | None:
        value = number(*labels)
        return None if value is None else int(value)

    return Mlxlink(
        state=word("State"),
        physical_state=word("Physical state"),
        speed=word("Speed"),
        width=word("Width"),
        fec=word("FEC"),
        recommendation=word("Recommendation"),
        raw_ber=number("Raw Physical BER"),
        effective_ber=number("Effective Physical BER"),
        symbol_ber=number("Symbol BER"),
        effective_errors=count("Effective Physical Errors"),
        link_downs=count("Link Down Counter"),
        temperature_c=number("Temperature [C]"),
        vendor=word("Vendor Name"),
        part_number=word("Vendor Part Number"),
        serial_number=word("Vendor Serial Number"),
        values=values,
    )


def _of_text(lines: list[Line]) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        if match := _ROW.fullmatch(line.text.strip()):
            values.setdefault(match["label"].strip(), match["value"].strip())
    return values


def _of_json(document: Mapping[str, Any]) -> dict[str, str]:
    """Sections and their values, flat: a label stands in one section only."""
    sections = document["result"].get("output")
    if not isinstance(sections, dict):
        raise ParseError(f"{TOOL}: its JSON has no output: {str(document.get('status'))[:200]}")
    values: dict[str, str] = {}
    for section in sections.values():
        for label, value in section.items() if isinstance(section, dict) else ():
            values.setdefault(str(label), _joined(value))
    return values


def _joined(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("values", list(value.values()))
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
