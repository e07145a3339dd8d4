"""`nodectl history`: What was measured of this fleet, and what drifts."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.errors import UsageError
from nodectl.report.findings import findings_list
from nodectl.report.measurements import measurements_table
from nodectl.report.table import aligned

if TYPE_CHECKING:
    from nodectl.history.store import Past


@click.group()
def history() -> None:
    """What was measured of this fleet, and what drifts."""


@history.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """The runs of `nodectl probe`, the latest first."""
    from nodectl.history.store import iso

    with app.history() as past:
        runs = past.runs()
    rows = [{"run": run, "time": iso(when), "probes": probes, "measurements": n} for run, when, probes, n in runs]
    lines = [(str(run), iso(when), probes.replace(",", ", "), str(count)) for run, when, probes, count in runs]
    table = aligned([("RUN", "TIME", "PROBES", "MEASUREMENTS"), *lines]) if runs else ""
    app.show("history", {"runs": rows}, table)


@history.command()
@click.argument("run", type=click.IntRange(1))
@click.pass_obj
def show(app: App, run: int) -> None:
    """What one run measured."""
    from nodectl.probes.registry import kind_of

    with app.history() as past:
        kept = past.past(run=run)
    if not kept:
        raise UsageError(f"no run {run} of this fleet", "see `nodectl history list`")
    table = measurements_table([row.measurement for row in kept], kind_of)
    app.show("history", {"run": run, "measurements": [_row(row) for row in kept]}, table)


@history.command()
@click.argument("probes", nargs=-1, metavar="[PROBE…]")
@click.pass_obj
def export(app: App, probes: tuple[str, ...]) -> None:
    """All measurements of the fleet, or of some probes, as JSON lines."""
    with app.history() as past:
        for kept in past.past(probes):
            click.echo(json.dumps(_row(kept)))


@history.command()
@click.pass_obj
def drift(app: App) -> None:
    """What became worse over the last 60 runs, against its own past and its peers; warnings, exit status 0."""
    from nodectl.history.drift import WINDOW, drifts

    with app.history() as past:
        findings = list(drifts(past.points(past.probes(), WINDOW)).values())
    app.show("history", {"findings": [asdict(finding) for finding in findings]}, findings_list(findings))


def _row(kept: Past) -> dict[str, object]:
    from nodectl.history.store import iso

    return {"run": kept.run, "time": iso(kept.time), **asdict(kept.measurement)}
