"""A report from its content: the sections in the order in which they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.model.acceptance import Acceptance
from nodectl.report.page.articles import articles_section
from nodectl.report.page.blocks import Page, Section
from nodectl.report.page.content import Content, Found
from nodectl.report.page.figures import figures_section
from nodectl.report.page.findings import findings_section
from nodectl.report.page.fleet import fleet_sections, origin_of
from nodectl.report.page.html import page_html
from nodectl.report.page.jobs import jobs_section
from nodectl.report.page.trends import trends_section
from nodectl.report.page.tuning import tuning_section
from nodectl.report.page.wiring import wiring_section


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
