"""A report from its content: the sections in the order in which they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from nodectl.model.acceptance import Acceptance
from nodectl.model.status import Status
from nodectl.report.page.articles import articles_section
from nodectl.report.page.blocks import Block, Cell, Chart, ChartKind, Mark, Number, Page, Section, Table, Text
from nodectl.report.page.content import Content, Found, Past, Trend
from nodectl.report.page.figures import figures_section
from nodectl.report.page.findings import findings_section
from nodectl.report.page.fleet import fleet_sections, origin_of
from nodectl.report.page.html import page_html
from nodectl.report.page.jobs import jobs_section
from nodectl.report.page.tuning import tuning_section
from nodectl.report.page.wiring import wiring_section

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


def report_html(content: Content) -> str:
    """One HTML file that fetches nothing."""
    facts = (f"made {content.made} by nodectl {content.nodectl}", *content.notes)
    return page_html(Page(content.title, facts, tuple(_sections(content))))


def _sections(content: Content) -> Iterator[Section]:
    yield from fleet_sections(content.acceptances, content.found)
    yield findings_section(content.found or _found(content.acceptances))
    yield wiring_section(content.wired)
    yield figures_section(content.acceptances, content.measured, content.kind_of)
    yield tuning_section(content.tuned)
    yield jobs_section(content.launched)
    yield articles_section(content.benched)
    yield trends_section(content.past)


def _found(acceptances: Sequence[Acceptance]) -> tuple[Found, ...]:
    """Return what the latest acceptance saw, where nobody looked at the hosts besides."""
    latest = max(acceptances, key=lambda one: one.began, default=None)
    return (Found(tuple(one.finding for one in latest.seen), origin_of(latest)),) if latest else ()
