"""The parts of a report, each saying where it is from, and their HTML: every text escaped, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nodectl.model.status import Status


class Nature(StrEnum):
    """The nature of the hosts that figures are of; `untold` where a saved file does not say."""

    MEASURED = "measured"
    LAB = "lab"
    RECORDED = "recorded"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True)
class Origin:
    """Hold where a figure is from: `source` is a recording's name, a file or the history."""

    nature: Nature
    source: str = ""

    @property
    def text(self) -> str:
        """For the caption: recorded and lab data are called so."""
        nature = {
            Nature.MEASURED: "measured on these hosts",
            Nature.LAB: "LAB DATA: hosts of one machine, no hardware",
            Nature.RECORDED: "RECORDED DATA: replayed, not measured now",
            Nature.UNTOLD: "of hosts that the file does not describe",
        }[self.nature]
        return f"{nature} ({self.source})" if self.source else nature


# no status is told by its colour alone
SYMBOLS = {
    Status.OK: "✓",
    Status.WARNING: "▲",
    Status.FAILED: "✕",
    Status.UNKNOWN: "?",
    Status.SKIPPED: "·",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell that is a judgement: a symbol and a colour for the status, and always its word."""

    status: Status
    word: str


@dataclass(frozen=True, slots=True)
class Number:
    """A cell whose text is a figure, and stands right."""

    text: str


Cell = str | Mark | Number


@dataclass(frozen=True, slots=True)
class Table:
    """A table; rows beyond the first are built when asked for."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    origin: Origin | None = None


class ChartKind(StrEnum):
    """The drawings that the page's program knows; what each wants of `data` stands there."""

    LINES = "lines"
    HEAT = "heat"
    INTERVALS = "intervals"
    TIMELINE = "timeline"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, with what it shows in a sentence, and the same figures as a table."""

    kind: ChartKind
    caption: str
    summary: str
    data: Mapping[str, object]
    table: Table
    origin: Origin


@dataclass(frozen=True, slots=True)
class Strip:
    """A status of many hosts, one cell each in the order of the page's hosts; None is one that was not asked."""

    title: str
    statuses: tuple[Status | None, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Strips:
    """All hosts at one sight: a block of cells for each step."""

    caption: str
    hosts: tuple[str, ...]
    strips: tuple[Strip, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class HostSearch:
    """A field that finds a host among many: its line of `columns`, and what was found there, by index into `texts`."""

    columns: tuple[str, ...]
    hosts: Sequence[tuple[Cell, ...]]
    found: Sequence[tuple[int, ...]]
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of each judgement, large."""

    counts: tuple[tuple[Mark, int], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; lines of a program's output where it is `pre`."""

    text: str
    pre: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Hold what is opened by whoever wants it: a line with a judgement, and blocks below it."""

    mark: Mark
    line: str
    blocks: tuple[Block, ...]
    is_open: bool = False


Block = Table | Chart | Strips | HostSearch | Tally | Text | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report, reached from its list of contents; without blocks `missing` says what would fill it."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report; `facts` are the lines below its title."""

    title: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]


def visible(text: str) -> str:
    r"""Return the text with control characters, direction overrides and lone surrogates spelled out (`\x1b`)."""
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def escaped(text: str) -> str:
    """For the content of an element and for an attribute in double quotes."""
    return html.escape(visible(text), quote=True)


def raw(text: str) -> Markup:
    """Let markup of our own through, in which all that others told is escaped."""
    return Markup(text)  # noqa: S704 - who calls it has escaped what others told


def script_json(value: object) -> str:
    """JSON that ends no script element and begins no comment in one, whatever its strings hold."""
    text = json.dumps(_visible(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _visible(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _visible(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(member) for member in value]
    # JSON has no infinity; a host may print one
    return None if isinstance(value, float) and value - value != 0 else value


# rows of a table that are there at once; the others are built when asked for
_SHOWN_ROWS = 24
# characters of a cell that are not broken into lines
_SHORT = 22
# a host's cell in a strip: so many units wide, and so many of them in a row
_CELL = 10
_IN_A_ROW = 40
# the shape of a cell by status, as a path from the cell's corner: no status is told by its colour alone
_SHAPES = {
    Status.OK: "m1 1h8v8h-8z",
    Status.WARNING: "m5 .5l4.5 9h-9z",
    Status.FAILED: "m1.5 0l3.5 3.5 3.5-3.5 1.5 1.5-3.5 3.5 3.5 3.5-1.5 1.5-3.5-3.5-3.5 3.5-1.5-1.5 3.5-3.5-3.5-3.5z",
    Status.UNKNOWN: "m1 1h8v8h-8zm2 2v4h4v-4z",
    Status.SKIPPED: "m3.5 4.2h3v1.6h-3z",
}


def page_html(page: Page) -> str:
    """Return the report as one HTML document."""
    return (
        _environment()
        .get_template("report.html")
        .render(page=page, writer=_Writer(), style=_asset("report.css"), short=_SHORT)
    )


@cache
def _environment() -> Environment:
    """Return the templates' surroundings: no text is printed unescaped but what `raw` lets through."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=lambda value: raw(escaped(value)) if isinstance(value, str) and type(value) is not Markup else value,
    )
    environment.globals |= {
        "kind": lambda block: type(block).__name__,
        "symbols": SYMBOLS,
        "statuses": list(Status),
        "raw": raw,
        "code": _with_code,
        "cells": _cells,
        "policy": _policy,
        "script_json": script_json,
    }
    return environment


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _policy(style: str, programs: Sequence[str]) -> str:
    """No request of any kind; no program and no style sheet but those written here."""
    hashes = " ".join(map(_hash, programs))
    # the charts' library sets style attributes; none of them can fetch anything
    return (
        f"default-src 'none'; script-src {hashes}; style-src-elem {_hash(style)}; "
        "style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _Writer:
    """Names blocks; `data` is what the page's program builds later, by the name of the element that wants it."""

    def __init__(self) -> None:
        self.data: dict[str, object] = {"short": _SHORT}
        self._has_charts = False
        self._number = 0

    def programs(self) -> list[str]:
        return [_asset(name) for name in (*(["echarts.min.js"] if self._has_charts else []), "report.js")]

    def table(self, table: Table) -> dict[str, object]:
        """Return its name, its columns as (title, whether of numbers), the rows that are there at once, and others."""
        # a column in which nobody has anything says nothing
        kept = [at for at in range(len(table.columns)) if any(_text(row[at]) for row in table.rows)]
        rows = [[row[at] for at in kept] for row in table.rows]
        heads = [(table.columns[at], any(isinstance(row[at], Number) for row in table.rows)) for at in kept]
        rest = [[_cell_data(cell) for cell in row] for row in rows[_SHOWN_ROWS:]]
        name = self._name("table", *([rest] if rest else []))
        return {"name": name, "heads": heads, "rows": rows[:_SHOWN_ROWS], "left": len(rest)}

    def chart(self, chart: Chart) -> str:
        self._has_charts = True
        return self._name("chart", {"kind": chart.kind, **chart.data})

    def strips(self, strips: Strips) -> str:
        return self._name("strips", {"hosts": strips.hosts, "row": _IN_A_ROW, "cell": _CELL})

    def search(self, search: HostSearch) -> str:
        hosts = [[_cell_data(cell) for cell in row] for row in search.hosts]
        data = {"columns": search.columns, "hosts": hosts, "found": search.found, "texts": search.texts}
        return self._name("search", data)

    def _name(self, kind: str, *data: object) -> str:
        self._number += 1
        self.data |= {f"{kind}-{self._number}": value for value in data}
        return f"{kind}-{self._number}"


def _with_code(text: str, *, breaks: bool = False) -> Markup:
    """Return what stands between backticks as code; with `breaks` a line may end behind a comma."""
    shown = re.sub("`([^`]+)`", r"<code>\1</code>", escaped(text))
    return raw(shown.replace(",", ",<wbr>") if breaks else shown)


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.word if isinstance(cell, Mark) else cell.text


def _cell_data(cell: Cell) -> object:
    """Return a text as it is, a number as [text], a mark as [status, symbol, word]."""
    if isinstance(cell, Mark):
        return [cell.status, SYMBOLS[cell.status], cell.word]
    return [cell.text] if isinstance(cell, Number) else cell


def _cells(statuses: Sequence[Status | None], label: str) -> Markup:
    """Draw all cells with one path for each status, so that a thousand hosts are five elements."""
    places: dict[Status, list[str]] = {}
    for number, status in enumerate(statuses):
        if status is not None:
            row, column = divmod(number, _IN_A_ROW)
            places.setdefault(status, []).append(f"M{column * _CELL} {row * _CELL}{_SHAPES[status]}")
    columns, rows = min(len(statuses), _IN_A_ROW), -(-len(statuses) // _IN_A_ROW)
    size = f'viewBox="0 0 {columns * _CELL} {rows * _CELL}" width="{columns * _CELL}" height="{rows * _CELL}"'
    paths = "".join(f'<path class="{status}" fill-rule="evenodd" d="{"".join(at)}"/>' for status, at in places.items())
    return raw(f'<svg class="cells" role="img" aria-label="{escaped(label)}" {size}>{paths}</svg>')
