"""`nodectl report`: Write what is known of the fleet as one HTML file to look at."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.health import look_at
from nodectl.cli.jobs import read_listing
from nodectl.cli.options import EXISTING_FILE, FILE, option, option_group, takes
from nodectl.cli.overview import health, latest_runs, nature_of, origin_of, past, trials, wiring, with_files
from nodectl.cli.terminal import writing
from nodectl.common.files import replace_file
from nodectl.errors import InventoryError
from nodectl.ledger.accept.store import latest
from nodectl.probes.registry import kind_of
from nodectl.report.jobs import job_document
from nodectl.report.page.content import Content, Launched
from nodectl.report.page.page import report_html


@option_group
class _Options:
    out: Path = option(
        "-o --out",
        "File into which the report is written.",
        type=FILE,
        default=Path("nodectl-report.html"),
        metavar="FILE",
    )
    saved: tuple[Path, ...] = option(
        "--from",
        "Saved output of `nodectl --output json` (health, probe, topology, tune trial, jobs, bench …); repeatable.",
        multiple=True,
        type=EXISTING_FILE,
        metavar="FILE",
    )
    hosts: bool = option(
        "--hosts/--no-hosts", "Whether hosts are asked for their health, wiring and jobs.", default=True
    )
    title: str = option(
        "--title", "Heading of the report.  Default: the fleet's inventory.", default="", metavar="TEXT"
    )


@click.command()
@takes(_Options)
@click.pass_obj
def report(app: App, asked: _Options) -> None:
    """Write what is known of the fleet as one HTML file, which opens without a network.

    It holds the hosts' health and wiring, jobs, the latest acceptance, measurements, trials and drift of the history,
    and the saved results that are given.  With --replay FOLDER a recording stands for the hosts.
    """
    # files first: a typo asks no host
    content = with_files(Content(asked.title, _now(), __version__, kind_of), asked.saved)
    content = _with_hosts(app, content) if asked.hosts else content
    content = _with_history(app, content, needed=not asked.saved)
    content = replace(content, title=asked.title or _heading(app))
    with writing(asked.out, "--out"):
        replace_file(asked.out, report_html(content), mode=0o644)
    app.show(
        "report",
        {"file": str(asked.out), "bytes": asked.out.stat().st_size},
        f"{asked.out} ({asked.out.stat().st_size / 1e6:.1f} MB)",
    )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def _heading(app: App) -> str:
    if app.replay is not None and not app.inventory_sources:
        return f"Fleet report: {app.source.recorded}"
    try:
        sources = (Path(source).resolve() for source in app.inventory.sources)
        return f"Fleet report: {', '.join(f'{source.parent.name}/{source.name}' for source in sources)}"
    except InventoryError:
        return "Fleet report"


def _with_hosts(app: App, content: Content) -> Content:
    looks = (health(app.source, look_at(app, {})), *content.found)
    wired = (wiring(app.source, app.profile_dirs), *content.wired)
    launched = content.launched if app.replay is not None else (_jobs(app), *content.launched)
    return replace(content, found=looks, wired=wired, launched=launched)


def _jobs(app: App) -> Launched:
    return Launched(tuple(map(job_document, read_listing(app).jobs)), origin_of(app.source, {}))


def _with_history(app: App, content: Content, *, needed: bool) -> Content:
    """Add what was kept of the inventory's fleet; a recording alone has no history, and saved files need none."""
    if app.replay is not None and not app.inventory_sources:
        return content
    try:
        members = app.inventory.hosts(app.limit)
        history = app.history()
    except InventoryError:
        if needed:
            raise
        return content
    with history:
        nature = nature_of(members, None)
        kept = past(history, nature)
        accepted = [one for complete in (True, False) if (one := latest(app.fleet, complete=complete))]
        return replace(
            content,
            acceptances=(*content.acceptances, *accepted),
            measured=(*content.measured, *latest_runs(history, nature)),
            tuned=(*content.tuned, *trials(history, nature)),
            past=kept if kept.trends else None,
        )
