"""Verdicts of trials: the gain of each thing measured with its 95 % interval beside the noise, the losses first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from nodectl.common.units import format_size
from nodectl.model.status import Status
from nodectl.model.verdict import Outcome, Verdict
from nodectl.report.page.blocks import SYMBOLS, Block, Cell, Chart, ChartKind, Mark, Number, Section, Table, Tally, Text
from nodectl.report.page.content import Tuned

# lines that a chart shows; the table below it has all
_MOST_LINES = 30
_STATUSES = {
    Outcome.BETTER: Status.OK,
    Outcome.NOISE: Status.SKIPPED,
    Outcome.WORSE: Status.FAILED,
    Outcome.UNKNOWN: Status.UNKNOWN,
}


def tuning_section(tuned: Sequence[Tuned]) -> Section:
    """Return a chart and a table for each trial."""
    missing = "No trial was run: `nodectl tune trial`."
    return Section("tuning", "Tuning", tuple(chain.from_iterable(map(_blocks, tuned))), missing)


def _blocks(one: Tuned) -> Iterator[Block]:
    counts = Counter(verdict.verdict for verdict in one.verdicts)
    state = "" if one.complete else " It ended early."
    yield Text(f"{one.name}: {len(one.verdicts)} verdicts against {one.baseline}.{state}")
    yield Tally(tuple((Mark(_STATUSES[outcome], outcome.value), counts[outcome]) for outcome in Outcome))
    ordered = sorted(one.verdicts, key=_gravity)
    table = _table(ordered, one)
    known = [verdict for verdict in ordered if verdict.interval_percent is not None][:_MOST_LINES]
    if not known:
        yield table
        return
    shown = f"; drawn: {len(known)} of {len(ordered)}" if len(known) < len(ordered) else ""
    caption = f"{one.name}: gain with 95 % interval; grey band: noise of the baseline{shown}"
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    data = {"rows": [_line(verdict) for verdict in known]}
    yield Chart(ChartKind.INTERVALS, caption, f"Gains with their intervals: {told}.", data, table, one.origin)


def _gravity(verdict: Verdict) -> tuple[object, ...]:
    """Losses, wins, what is undecided, noise; of each the largest first, means before what they are of."""
    order = (Outcome.WORSE, Outcome.BETTER, Outcome.UNKNOWN, Outcome.NOISE)
    return not verdict.is_regression, order.index(verdict.verdict), not verdict.is_mean, -abs(verdict.gain_percent or 0)


def _name(verdict: Verdict) -> str:
    size = "" if verdict.size_bytes is None else format_size(verdict.size_bytes)
    return " ".join(filter(None, [verdict.probe, verdict.subject, size, f"({verdict.profile})"]))


def _line(verdict: Verdict) -> dict[str, object]:
    low, high = verdict.interval_percent or (0.0, 0.0)
    status = _STATUSES[verdict.verdict]
    return {
        "name": _name(verdict),
        "verdict": verdict.verdict.value,
        "status": status.value,
        "symbol": SYMBOLS[status],
        "gain": verdict.gain_percent or 0.0,
        "low": low,
        "high": high,
        "noise": verdict.noise_percent or 0.0,
    }


def _table(verdicts: Sequence[Verdict], one: Tuned) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for verdict in verdicts:
        low, high = verdict.interval_percent or (None, None)
        failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
        rows.append(
            (
                verdict.profile,
                verdict.probe,
                verdict.subject,
                Number("" if verdict.size_bytes is None else format_size(verdict.size_bytes)),
                Mark(_STATUSES[verdict.verdict], verdict.verdict.value),
                Number(_percent(verdict.gain_percent)),
                Number("" if low is None or high is None else f"{_percent(low)} to {_percent(high)}"),
                Number("" if verdict.noise_percent is None else f"{verdict.noise_percent:.1f} %"),
                Number(f"{verdict.pairs}{failed}"),
                verdict.reason,
            )
        )
    columns = ("Profile", "Probe", "What", "Size", "Verdict", "Gain", "95 % interval", "Noise", "Pairs", "Reason")
    return Table(f"{one.name}: verdicts", columns, rows, one.origin)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"
