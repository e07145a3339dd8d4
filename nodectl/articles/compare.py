"""Two ways to train, before and after: time saved and speed gained of each, and whether the runs can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import fmean

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

# (seconds of training, loss), in the order of time
Curve = Sequence[tuple[float, float]]
# a step's loss is of few samples: so many readings are averaged
_WINDOW = 5


def smoothed(curve: Curve) -> list[tuple[float, float]]:
    """Each reading as the mean with those before it, as many as are there up to the window."""
    losses = [loss for _, loss in curve]
    return [(at, fmean(losses[max(0, end - _WINDOW) : end])) for end, (at, _) in enumerate(curve, start=1)]


def shared_loss(curves: Sequence[Curve]) -> float | None:
    """Return the lowest loss to which all of them come; None if one has too few readings to tell."""
    if not curves or any(len(curve) < _WINDOW for curve in curves):
        return None
    return max(min(loss for _, loss in smoothed(curve)[_WINDOW - 1 :]) for curve in curves)


def seconds_to(curve: Curve, loss: float) -> float | None:
    """Return when its loss was first that low, between two readings by a straight line; None if it never was."""
    before: tuple[float, float] | None = None
    for at, now in smoothed(curve):
        if now <= loss:
            if before is None or before[1] <= now:
                return at
            return before[0] + (at - before[0]) * (before[1] - loss) / (before[1] - now)
        before = (at, now)
    return None


ARTICLE, CLAIM = 1, "two_clouds"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A row: the field of a run, its column and words and unit; `judged` where less is better.

    One that no article has is shown where a run tells it.
    """

    field: str
    column: str
    words: str
    unit: str
    is_time: bool = False
    judged: bool = True
    in_article: bool = True


_EQUAL = _Kind("equal_s", "equal_loss", "time to the same loss", "s", is_time=True, in_article=False)
_ARTICLE_ROWS = (
    _Kind("step_s", "step", "step time", "s", is_time=True),
    _Kind("total_s", "total", "total time", "s", is_time=True),
    _Kind("gpu_use_percent", "gpu_use", "GPU utilisation", "%", judged=False),
    _Kind("network_gbit_s", "network", "network, sent by a host", "Gbit/s", judged=False),
)
_LOSSES = (
    _Kind("last_loss", "last_loss", "loss at the end", "", judged=False, in_article=False),
    _Kind("held_out_loss", "held_out_loss", "held-out loss", "", judged=False, in_article=False),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one value to another; a time is also told as speed."""

    before: float
    after: float
    is_time: bool

    @property
    def time_saved_percent(self) -> float | None:
        """Return the saved part of the time before; None of what is no time."""
        return 100 * (1 - self.after / self.before) if self.is_time else None

    @property
    def speed_gained_percent(self) -> float | None:
        """Return the gain over the speed before, which is one over the time; None of what is no time."""
        return 100 * (self.before / self.after - 1) if self.is_time else None

    @property
    def more_percent(self) -> float | None:
        """Return the growth of the value; None of a time, where more and less would be mixed up."""
        return None if self.is_time else 100 * (self.after / self.before - 1)


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
        return Change(was, now, self.kind.is_time) if was and now else None


@dataclass(frozen=True, slots=True)
class Section:
    """Hold what was trained on both sides: its rows, and what else differs between the runs.

    `same_loss` is the lowest to which all runs come; None if they do not tell.
    """

    what: str
    runs: tuple[int, int]
    rows: tuple[Row, ...]
    differs: tuple[str, ...]
    same_loss: float | None = None

    def row(self, column: str) -> Row | None:
        """Return the row of that name; None if it is not shown."""
        return next((row for row in self.rows if row.kind.column == column), None)


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
    same_loss = shared_loss([run.curve for run in (*before, *after)])
    rows = [_row(kind, before, after) for kind in _ARTICLE_ROWS]
    rows += [row for row in (_row(kind, before, after) for kind in _LOSSES) if row.change is not None]
    rows += [_to_the_same_loss(before, after, same_loss)] if rows[-1].kind in _LOSSES else []
    judged = [at for at, row in enumerate(rows) if row.change is not None and row.kind.judged]
    verdicts = dict(zip(judged, judge([_series(rows[at]) for at in judged]), strict=True))
    judged_rows = tuple(
        Row(row.kind, row.before, row.after, row.missing, verdicts.get(at)) for at, row in enumerate(rows)
    )
    runs = (len(before), len(after))
    return Section(what, runs, judged_rows, _differences(before, after), same_loss)


def _to_the_same_loss(before: list[Run], after: list[Run], loss: float | None) -> Row:
    if loss is None:
        return Row(_EQUAL, missing="too few losses over time are told (--log-every)")
    was, now = (tuple(seconds_to(run.curve, loss) for run in side) for side in (before, after))
    return Row(_EQUAL, was, now)


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
    """Return what makes them two trainings, other than what is measured."""
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
    is_lost = [all(run.last_loss is None for run in side) for side in (before, after)]
    if is_lost[0] != is_lost[1]:
        lost = "before" if is_lost[0] else "after"
        differences.append(f"loss at the end: no run {lost} ends with a number, as one that diverges does not")
    return tuple(differences)


def _published(column: str) -> dict[str, Figure]:
    return {figure.row: figure for figure in figures(ARTICLE, CLAIM, column)}


def article_change(kind: _Kind) -> Change:
    """Return the article's own row."""
    sides = _published(kind.column)
    return Change(sides["before"].value, sides["after"].value, kind.is_time)


def compare_document(sections: Sequence[Section]) -> dict[str, object]:
    """Return it as plain data for JSON."""
    return {"sections": [_section_document(section) for section in sections]}


def _section_document(section: Section) -> dict[str, object]:
    return {
        "what": section.what,
        "runs": {"before": section.runs[0], "after": section.runs[1]},
        "differs": list(section.differs),
        "same_loss": section.same_loss,
        "rows": [
            {
                "name": row.kind.column,
                "unit": row.kind.unit,
                "values": {"before": list(row.before), "after": list(row.after)},
                "change": row.change and _change_document(row.change),
                "missing": row.missing or None,
                "verdict": row.verdict and asdict(row.verdict),
                "article": _article_document(row.kind),
            }
            for row in section.rows
        ],
    }


def _article_document(kind: _Kind) -> dict[str, object] | None:
    if not kind.in_article:
        return None
    unit = _published(kind.column)["before"].unit
    return {"article": ARTICLE, **_change_document(article_change(kind)), "unit": unit}


_CHANGE = ("before", "after", "time_saved_percent", "speed_gained_percent", "more_percent")


def _change_document(change: Change) -> dict[str, object]:
    return {name: getattr(change, name) for name in _CHANGE}


def compare_text(sections: Sequence[Section], width: int) -> str:
    """Return the four rows of each section, and the article's beside them."""
    return "\n\n".join(_section_text(section, width) for section in sections)


_HEADER = ("", "BEFORE", "AFTER", "TIME SAVED", "SPEED GAINED", "MORE", "VERDICT")


def _section_text(section: Section, width: int) -> str:
    ours = [(row.kind.words, *_cells(row.change, row.kind.unit), _verdict(row, section.runs)) for row in section.rows]
    theirs = [
        (f"article {ARTICLE}, {kind.words.partition(',')[0]}",
         *_cells(article_change(kind), _published(kind.column)["before"].unit), "")
        for kind in _ARTICLE_ROWS
    ]  # fmt: skip
    runs = " and ".join(counted(number, "run") for number in section.runs)
    lines = [f"{section.what}: {runs}", fitted([_HEADER, *ours, *theirs], width), ""]
    remarks = [f"not the same training: {text}" for text in section.differs]
    remarks += [_at_the_same_loss(section)] if section.differs else []
    lines += [piece for text in remarks for piece in broken(text, width)]
    return "\n".join([*lines, _headline(), *broken(elsewhere(ARTICLE), width)])


def _at_the_same_loss(section: Section) -> str:
    """Return what another training gains, if anything: not by its step time, but by when it has learned as much."""
    row = section.row(_EQUAL.column)
    change = None if row is None else row.change
    if row is None or change is None:
        why = "the runs tell no losses" if row is None else row.missing
        return f"whether it gains anything cannot be told: {why}, and a step that learns less is no gain"
    gained = change.speed_gained_percent or 0.0
    text = f"to the loss {digits(section.same_loss or 0.0)} it takes {digits(change.before)} s before and "
    text += f"{digits(change.after)} s after: {gained:+.1f} % speed"
    return f"{text}, {_verdict(row, section.runs)}"


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


def _headline() -> str:
    """Return what the article's own headline is of its rows."""
    (stated,) = (figure for figure in figures(ARTICLE, "improvement", "training"))
    for kind in _ARTICLE_ROWS:
        change = article_change(kind)
        for name in ("time_saved_percent", "speed_gained_percent", "more_percent"):
            value = getattr(change, name)
            if value is not None and abs(value - stated.value) < 0.5:
                return f"the article's {stated.value:g} % is its {kind.words}, {name.replace('_percent', '')}"
    return f"the article's own {stated.value:g} % follows from none of its rows"
