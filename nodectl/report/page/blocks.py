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
from functools import cache, singledispatchmethod
from importlib.resources import files
from string import Template

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
class Drawing:
    """An SVG document of our own, in which all that hosts told is escaped; `summary` for those who do not see it."""

    caption: str
    summary: str
    svg: str
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


Block = Table | Chart | Drawing | Strips | HostSearch | Tally | Text | Fold


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
    writer = _Writer()
    body = "\n".join(map(writer.section, page.sections))
    libraries = ["echarts.min.js"] if writer.has_charts else []
    style, programs = _asset("report.css"), [_asset(name) for name in (*libraries, "report.js")]
    contents = (f'<li><a href="#{section.id}">{escaped(section.title)}</a></li>' for section in page.sections)
    return Template(_asset("report.html")).substitute(
        policy=_policy(style, programs),
        title=escaped(page.title),
        style=style,
        facts="".join(f"<li>{escaped(fact)}</li>" for fact in page.facts),
        contents="".join(contents),
        body=body,
        data=script_json(writer.data),
        scripts="\n".join(f"<script>{program}</script>" for program in programs),
    )


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
    """Writes blocks; `data` is what the page's program builds later, by the number of the element that wants it."""

    def __init__(self) -> None:
        self.data: dict[str, object] = {"short": _SHORT}
        self.has_charts = False
        self._number = 0

    def section(self, section: Section) -> str:
        blocks = "\n".join(map(self.block, section.blocks))
        missing = "" if section.blocks else f'<p class="missing">{_with_code(section.missing)}</p>'
        head = f'<section id="{section.id}" aria-labelledby="{section.id}-title">'
        return f'{head}<h2 id="{section.id}-title">{escaped(section.title)}</h2>\n{blocks}{missing}</section>'

    @singledispatchmethod
    def block(self, block: Block) -> str:
        """Return the block's HTML."""
        raise TypeError(f"{block!r} is no block")

    @block.register
    def _(self, text: Text) -> str:
        return f'<pre tabindex="0">{escaped(text.text)}</pre>' if text.pre else f"<p>{_with_code(text.text)}</p>"

    @block.register
    def _(self, tally: Tally) -> str:
        items = "".join(
            f'<li class="{mark.status}"><b>{count:,}</b> {_mark(mark)}</li>' for mark, count in tally.counts
        )
        return f'<ul class="tally">{items}</ul>'

    @block.register
    def _(self, table: Table) -> str:
        name = self._name("table")
        # a column in which nobody has anything says nothing
        kept = [at for at in range(len(table.columns)) if any(_text(row[at]) for row in table.rows)]
        shown = [[row[at] for at in kept] for row in table.rows]
        heads = [
            _head(table.columns[at], numbers=any(isinstance(row[at], Number) for row in table.rows)) for at in kept
        ]
        rows, rest, more = "".join(map(_row, shown[:_SHOWN_ROWS])), shown[_SHOWN_ROWS:], ""
        if rest:
            self.data[name] = [[_cell_data(cell) for cell in row] for row in rest]
            more = (
                f'<p class="more"><button type="button" data-more="{name}">Show more rows: {len(rest):,} left</button>'
                "</p>"
            )
        return (
            f'<p class="caption" id="{name}-caption">{_caption(table.caption, table.origin)}</p>'
            f'<div class="scroll" role="group" aria-labelledby="{name}-caption" tabindex="0">'
            f'<table id="{name}" aria-labelledby="{name}-caption"><thead><tr>{"".join(heads)}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{more}"
        )

    @block.register
    def _(self, chart: Chart) -> str:
        self.has_charts = True
        name = self._name("chart")
        self.data[name] = {"kind": chart.kind, **chart.data}
        return (
            f'<figure><figcaption id="{name}-caption">{_caption(chart.caption, chart.origin)}</figcaption>'
            f'<div class="scroll" role="group" tabindex="0" aria-label="{escaped(chart.caption)}, as a picture">'
            f'<div class="chart" id="{name}" role="img" aria-label="{escaped(chart.summary)}"></div></div>'
            f"<details><summary>The same as a table<span class='vh'>: {escaped(chart.caption)}</span></summary>"
            f"{self.block(chart.table)}</details></figure>"
        )

    @block.register
    def _(self, drawing: Drawing) -> str:
        label = escaped(drawing.summary)
        # no pattern's replacement: a label may hold what is an escape there
        picture = f'<svg role="img" aria-label="{label}" {drawing.svg.removeprefix("<svg ")}'
        return (
            f"<figure><figcaption>{_caption(drawing.caption, drawing.origin)}</figcaption>"
            f'<div class="scroll paper" role="group" tabindex="0" aria-label="{escaped(drawing.caption)}">'
            f"{picture}</div></figure>"
        )

    @block.register
    def _(self, strips: Strips) -> str:
        name = self._name("strips")
        self.data[name] = {"hosts": strips.hosts, "row": _IN_A_ROW, "cell": _CELL}
        blocks = "".join(
            f'<div class="strip"><h3>{escaped(strip.title)}</h3><p>{escaped(strip.summary)}</p>'
            f"{_cells(strip.statuses, f'{strip.title}: {strip.summary}')}</div>"
            for strip in strips.strips
        )
        legend = "".join(f"<li>{_cells((status,), status.value)}<span>{status.value}</span></li>" for status in Status)
        return (
            f"<figure><figcaption>{_caption(strips.caption, strips.origin)}</figcaption>"
            f'<ul class="legend">{legend}</ul><div class="strips" data-strips="{name}">{blocks}</div>'
            f'<p class="under" aria-hidden="true" data-under="{name}"></p></figure>'
        )

    @block.register
    def _(self, search: HostSearch) -> str:
        name = self._name("search")
        self.data[name] = {
            "columns": search.columns,
            "hosts": [[_cell_data(cell) for cell in row] for row in search.hosts],
            "found": search.found,
            "texts": search.texts,
        }
        return (
            f'<div class="search" hidden><label for="{name}">Find a host</label>'
            f'<input id="{name}" type="search" autocomplete="off" spellcheck="false" data-search="{name}">'
            f'<p role="status" data-count="{name}"></p><div data-results="{name}"></div></div>'
        )

    @block.register
    def _(self, fold: Fold) -> str:
        inner = "".join(map(self.block, fold.blocks))
        state = " open" if fold.is_open else ""
        summary = f"<summary>{_mark(fold.mark)} <span>{escaped(fold.line)}</span></summary>"
        return f'<details class="fold {fold.mark.status}"{state}>{summary}<div>{inner}</div></details>'

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"


def _caption(text: str, origin: Origin | None) -> str:
    where = f'<span class="origin {origin.nature}">{escaped(origin.text)}</span>' if origin else ""
    return f"{escaped(text)} {where}".strip()


def _with_code(text: str) -> str:
    """Return what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escaped(text))


def _mark(mark: Mark) -> str:
    symbol = f'<span aria-hidden="true">{SYMBOLS[mark.status]}</span>'
    return f'<span class="mark {mark.status}">{symbol} {escaped(mark.word)}</span>'


def _head(title: str, *, numbers: bool) -> str:
    kind = ' class="number"' if numbers else ""
    return f'<th scope="col"{kind}>{escaped(title)}</th>'


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.word if isinstance(cell, Mark) else cell.text


def _row(row: Sequence[Cell]) -> str:
    return f"<tr>{''.join(map(_cell, row))}</tr>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Mark):
        return f"<td>{_mark(cell)}</td>"
    if isinstance(cell, Number):
        return f'<td class="number">{escaped(cell.text)}</td>'
    # a long text is as wide as it needs, and no wider than its box; a short one stays on one line
    if len(cell) <= _SHORT:
        return f"<td>{_with_code(cell)}</td>"
    return f"<td><div>{_with_code(cell).replace(',', ',<wbr>')}</div></td>"


def _cell_data(cell: Cell) -> object:
    """Return a text as it is, a number as [text], a mark as [status, symbol, word]."""
    if isinstance(cell, Mark):
        return [cell.status, SYMBOLS[cell.status], cell.word]
    return [cell.text] if isinstance(cell, Number) else cell


def _cells(statuses: Sequence[Status | None], label: str) -> str:
    """Draw all cells with one path for each status, so that a thousand hosts are five elements."""
    places: dict[Status, list[str]] = {}
    for number, status in enumerate(statuses):
        if status is not None:
            row, column = divmod(number, _IN_A_ROW)
            places.setdefault(status, []).append(f"M{column * _CELL} {row * _CELL}{_SHAPES[status]}")
    columns, rows = min(len(statuses), _IN_A_ROW), -(-len(statuses) // _IN_A_ROW)
    size = f'viewBox="0 0 {columns * _CELL} {rows * _CELL}" width="{columns * _CELL}" height="{rows * _CELL}"'
    paths = "".join(f'<path class="{status}" fill-rule="evenodd" d="{"".join(at)}"/>' for status, at in places.items())
    return f'<svg class="cells" role="img" aria-label="{escaped(label)}" {size}>{paths}</svg>'
