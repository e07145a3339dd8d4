"""Values over the runs: what drifts, each with its finding, and the fleet's medians."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nodectl.model.status import Status
from nodectl.report.page.blocks import Block, Cell, Chart, ChartKind, Mark, Number, Section, Table, Text
from nodectl.report.page.content import Past, Trend

_MOST_DRIFTING = 24


def trends_section(past: Past | None) -> Section:
    """Return what drifts first; of many the first are drawn, and all are in the table."""
    missing = "The history holds no two runs of one thing: `nodectl probe` keeps what it measures."
    return Section("history", "History and drift", tuple(_blocks(past)) if past else (), missing)


def _blocks(past: Past) -> Iterator[Block]:
    drifting = [trend for trend in past.trends if trend.drifts is not None]
    others = [trend for trend in past.trends if trend.drifts is None]
    yield Text(f"Looked at: {past.looked}.")
    if drifting:
        yield Table(
            "What drifts for the worse",
            ("Status", "What", "Usual", "Latest", "Trend", "What to do"),
            [_row(trend) for trend in drifting],
            past.origin,
        )
    else:
        yield Text(
            "Nothing drifts for the worse."
            if past.judged
            else "The history holds too few measurements to show a drift."
        )
    for trend in (*drifting[:_MOST_DRIFTING], *others):
        yield _chart(trend, past)


def _row(trend: Trend) -> tuple[Cell, ...]:
    finding = trend.drifts
    if finding is None:
        return ()
    mark = Mark(finding.status, finding.status.value)
    return mark, trend.label, Number(finding.expected), finding.actual, finding.evidence, finding.remedy


def _chart(trend: Trend, past: Past) -> Chart:
    values = [value for _, value in trend.points]
    rows: list[tuple[Cell, ...]] = [(_clock(when), Number(trend.unit.short(value))) for when, value in trend.points]
    drifts = f"drifts: {trend.drifts.actual}" if trend.drifts else "no drift told"
    ends = f"{trend.unit.short(values[0])} to {trend.unit.short(values[-1])}"
    summary = f"Line chart of {trend.label} over {len(values)} runs, {ends}; {drifts}."
    line = {"name": trend.label, "points": [[1000 * when, value] for when, value in trend.points]}
    data = {"x": "time", "unit": trend.unit.name, "lines": [line], "scale": True}
    status = Status.WARNING.value if trend.drifts else ""
    caption = f"{trend.label}, in {trend.unit.name}{f' ({status}: drifts)' if status else ''}"
    return Chart(
        ChartKind.LINES, caption, summary, data, Table(caption, ("Run", "Value"), rows, past.origin), past.origin
    )


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
