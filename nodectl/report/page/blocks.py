"""The parts of a report: sections of tables, charts, drawings and folded findings, each saying where it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
