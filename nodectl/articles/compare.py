"""Two ways to train, before and after: time saved and speed gained of each, and whether the runs can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

from nodectl.articles.claims import Figure, figures
from nodectl.articles.comparing import Judge, elsewhere, told_median
from nodectl.articles.runs import Run
from nodectl.articles.training import NAME
from nodectl.common.counting import counted
from nodectl.common.units import digits
from nodectl.errors import UsageError
from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome, Verdict
from nodectl.report.table import broken, fitted

ARTICLE, CLAIM = 1, "two_clouds"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A row: the field of a run, its column in the article, words and unit; a time is less if it is better."""

    field: str
    column: str
    words: str
    unit: str
    is_time: bool = False


_ROWS = (
    _Kind("step_s", "step", "step time", "s", is_time=True),
    _Kind("total_s", "total", "total time", "s", is_time=True),
    _Kind("gpu_use_percent", "gpu_use", "GPU utilisation", "%"),
    _Kind("network_gbit_s", "network", "network, sent by a host", "Gbit/s"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one value to another; a time is also told as speed, which is one over it."""

    before: float
    after: float
    time_saved_percent: float | None = None
    speed_gained_percent: float | None = None
    more_percent: float | None = None

    @classmethod
    def of(cls, kind: _Kind, before: float, after: float) -> Change:
        """Return the change; of a time without `more_percent`, since more and less would be mixed up."""
        if kind.is_time:
            return cls(before, after, 100 * (1 - after / before), 100 * (before / after - 1))
        return cls(before, after, more_percent=100 * (after / before - 1))


@dataclass(frozen=True, slots=True)
class Row:
    """One of the four: `change` of the medians, or why there is none; the verdict if there was one to make.

    A run that does not tell its value has None in its place, so that the others keep their partners.
    """

    kind: _Kind
    before: tuple[float | None, ...] = ()
    after: tuple[float | None, ...] = ()
    missing: str = ""
    verdict: Verdict | None = None

    @property
    def change(self) -> Change | None:
        """Return None if a side has no value, or one that is 0."""
        was, now = told_median(self.before), told_median(self.after)
        return Change.of(self.kind, was, now) if was and now else None


@dataclass(frozen=True, slots=True)
class Section:
    """Hold what was trained on both sides: its rows, and what else differs between the runs."""

    what: str
    runs: tuple[int, int]
    rows: tuple[Row, ...]
    differs: tuple[str, ...]


def compare(before: Sequence[Run], after: Sequence[Run], judge: Judge) -> list[Section]:
    """Return a section for everything that both sides trained; UsageError if that is nothing.

    `judge` gives the verdicts on series of pairs: the first run of one side goes with the first of the other.
    """
    sides = [_by_what(runs) for runs in (before, after)]
    shared = [what for what in sides[0] if what in sides[1]]
    if not shared:
        trained = " and ".join(", ".join(side) for side in sides)
        raise UsageError(f"nothing was trained both before and after: {trained}", "give runs of the same workload")
    return [_section(what, sides[0][what], sides[1][what], judge) for what in shared]


def _by_what(runs: Sequence[Run]) -> dict[str, list[Run]]:
    named: dict[str, list[Run]] = {}
    for run in runs:
        named.setdefault(run.what, []).append(run)
    return named


def _section(what: str, before: list[Run], after: list[Run], judge: Judge) -> Section:
    rows = [_row(kind, before, after) for kind in _ROWS]
    judged = [at for at, row in enumerate(rows) if row.change is not None and row.kind.is_time]
    verdicts = dict(zip(judged, judge([_series(rows[at]) for at in judged]), strict=True))
    judged_rows = tuple(
        Row(row.kind, row.before, row.after, row.missing, verdicts.get(at)) for at, row in enumerate(rows)
    )
    runs = (len(before), len(after))
    return Section(what, runs, judged_rows, _differences(before, after))


def _row(kind: _Kind, before: list[Run], after: list[Run]) -> Row:
    if kind.field == "total_s":
        amounts = [sorted({run.samples for run in side if run.samples is not None}) for side in (before, after)]
        if amounts[0] != amounts[1]:
            texts = [", ".join(digits(amount) for amount in side) or "?" for side in amounts]
            return Row(kind, missing=f"not the same training: {texts[0]} samples before, {texts[1]} after")
    was, now = (tuple(getattr(run, kind.field) for run in side) for side in (before, after))
    silent = [run for side, values in ((before, was), (after, now)) if told_median(values) is None for run in side]
    reasons = dict.fromkeys(run.missing.get(kind.field, "the run does not tell it") for run in silent)
    return Row(kind, was, now, "; ".join(reasons))


def _series(row: Row) -> Series:
    pairs = tuple(Pair(first, second) for first, second in zip_longest(row.before, row.after))
    return Series("after", "before", NAME, row.kind.unit, pairs, subject=row.kind.words)


def _differences(before: list[Run], after: list[Run]) -> tuple[str, ...]:
    names = dict.fromkeys(name for run in (*before, *after) for name in run.course)
    differences = []
    untold: dict[str, list[str]] = {"before": [], "after": []}
    for name in names:
        label = name.replace("_", " ")
        silent = [
            side for side, runs in (("before", before), ("after", after)) if not any(name in run.course for run in runs)
        ]
        if silent:
            untold[silent[0]].append(label)
            continue
        sides = [list(dict.fromkeys(str(run.course.get(name, "not told")) for run in side)) for side in (before, after)]
        if len({*sides[0], *sides[1]}) > 1:
            differences.append(f"{label}: {', '.join(sides[0])} before, {', '.join(sides[1])} after")
    differences += [f"not told {side}: {', '.join(labels)}" for side, labels in untold.items() if labels]
    return tuple(differences)


def _published(column: str) -> dict[str, Figure]:
    return {figure.row: figure for figure in figures(ARTICLE, CLAIM, column)}


def _article_change(kind: _Kind) -> Change:
    sides = _published(kind.column)
    return Change.of(kind, sides["before"].value, sides["after"].value)


def compare_document(sections: Sequence[Section]) -> dict[str, object]:
    """Return it as plain data for JSON."""
    return {"sections": [_section_document(section) for section in sections]}


def _section_document(section: Section) -> dict[str, object]:
    return {
        "what": section.what,
        "runs": {"before": section.runs[0], "after": section.runs[1]},
        "differs": list(section.differs),
        "rows": [
            {
                "name": row.kind.column,
                "unit": row.kind.unit,
                "values": {"before": list(row.before), "after": list(row.after)},
                "change": row.change and asdict(row.change),
                "missing": row.missing or None,
                "verdict": row.verdict and asdict(row.verdict),
                "article": {
                    "article": ARTICLE,
                    **asdict(_article_change(row.kind)),
                    "unit": _published(row.kind.column)["before"].unit,
                },
            }
            for row in section.rows
        ],
    }


def compare_text(sections: Sequence[Section], width: int) -> str:
    """Return the four rows of each section, and the article's beside them."""
    return "\n\n".join(_section_text(section, width) for section in sections)


_HEADER = ("", "BEFORE", "AFTER", "TIME SAVED", "SPEED GAINED", "MORE", "VERDICT")


def _section_text(section: Section, width: int) -> str:
    ours = [(row.kind.words, *_cells(row.change, row.kind.unit), _verdict(row, section.runs)) for row in section.rows]
    theirs = [
        (f"article {ARTICLE}, {kind.words.partition(',')[0]}",
         *_cells(_article_change(kind), _published(kind.column)["before"].unit), "")
        for kind in _ROWS
    ]  # fmt: skip
    runs = " and ".join(counted(number, "run") for number in section.runs)
    lines = [f"{section.what}: {runs}", fitted([_HEADER, *ours, *theirs], width), ""]
    remarks = (f"not the same training: {text}" for text in section.differs)
    lines += [piece for text in remarks for piece in broken(text, width)]
    return "\n".join([*lines, *broken(elsewhere(ARTICLE), width)])


def _cells(change: Change | None, unit: str) -> tuple[str, ...]:
    if change is None:
        return ("-",) * 5
    points = f"{change.after - change.before:+.1f} points, " if unit == "%" else ""
    more = "-" if change.more_percent is None else f"{points}{change.more_percent:+.1f} %"
    saved, gained = (
        "-" if value is None else f"{value:.1f} %" for value in (change.time_saved_percent, change.speed_gained_percent)
    )
    sides = (f"{digits(value)} {unit}".rstrip() for value in (change.before, change.after))
    return (*sides, saved, gained, more)


def _verdict(row: Row, runs: tuple[int, int]) -> str:
    if row.change is None:
        return row.missing
    if row.verdict is None:
        return "not judged: more of it is not better by itself"
    if row.verdict.verdict is Outcome.UNKNOWN:
        return f"unknown: {'a single run cannot tell' if min(runs) == 1 else row.verdict.reason}"
    return f"{row.verdict.verdict}: {row.verdict.reason}"
