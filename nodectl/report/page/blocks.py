"""The parts of a report, and their HTML: one template, every text escaped, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nodectl.model.status import Status
from nodectl.report.page.content import Origin

# the word of a status stands beside its symbol: colour is never the only carrier
SYMBOLS = {
    Status.OK: "✓",
    Status.WARNING: "▲",
    Status.FAILED: "✕",
    Status.UNKNOWN: "?",
    Status.SKIPPED: "·",
}
# further rows of a table stand in a fold
_MOST_ROWS = 24
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell that is a judgement: symbol and colour of the status, and a word."""

    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """A cell that is a figure; `share` (0 to 1) is the length of a bar below it."""

    text: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """A cell of a heat map; `shade` is 0 (good) to 1 (bad)."""

    text: str
    shade: float
    blamed: bool = False


Cell = str | Mark | Number | Heat


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its header."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; lines of a program's output if it is `pre`."""

    text: str
    pre: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """A line with a judgement, and the blocks that appear when it is opened."""

    mark: Mark
    line: str
    blocks: tuple[Text | Table, ...]
    is_open: bool = False


Block = Table | Text | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report; without blocks `missing` says what would fill it."""

    id: str
    title: str
    missing: str
    blocks: tuple[Block, ...] = ()


def page_html(title: str, made: str, sections: Sequence[Section]) -> str:
    """Return the report as one HTML document."""
    # the stylesheet is ours, and holds nothing that others reported
    style = Markup((_FOLDER / "report.css").read_text(encoding="utf-8"))  # noqa: S704
    return _environment().get_template("report.html").render(title=title, made=made, sections=sections, style=style)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.globals |= {"kind": lambda block: type(block).__name__, "symbols": SYMBOLS, "code": _with_code}
    environment.globals |= {"filled": _without_empty_columns, "MOST_ROWS": _MOST_ROWS}
    return environment


def visible(text: str) -> str:
    r"""Return the text with control characters, direction overrides and lone surrogates spelled out (`\x1b`)."""
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def _with_code(text: str) -> Markup:
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704


def _without_empty_columns(table: Table) -> Table:
    kept = [at for at in range(len(table.columns)) if any(getattr(row[at], "text", row[at]) for row in table.rows)]
    rows = [tuple(row[at] for at in kept) for row in table.rows]
    return Table(table.caption, tuple(table.columns[at] for at in kept), rows, table.origin)
