"""`nodectl history`: What was measured of this fleet."""

from __future__ import annotations

from dataclasses import asdict

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import terminal_width
from nodectl.errors import UsageError
from nodectl.ledger.history.database import iso
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import measurements_text
from nodectl.report.table import aligned

_NOTHING = "nothing was measured of this fleet yet: `nodectl probe` keeps what it measures"


@click.group()
def history() -> None:
    """Show what was measured of this fleet."""


@history.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List the runs of `nodectl probe`, the latest first."""
    with app.history() as past:
        runs = past.runs()
    rows = [{"run": run, "time": iso(when), "probes": probes, "measurements": n} for run, when, probes, n in runs]
    lines = [(str(run), iso(when), probes.replace(",", ", "), str(count)) for run, when, probes, count in runs]
    table = aligned([("RUN", "TIME", "PROBES", "MEASUREMENTS"), *lines]) if runs else _NOTHING
    app.show("history", {"runs": rows}, table)


@history.command()
@click.argument("run", type=click.IntRange(1))
@click.option("--all", "everything", is_flag=True, help="Show each value in the table.")
@click.pass_obj
def show(app: App, run: int, everything: bool) -> None:
    """Show what one run measured."""
    with app.history() as past:
        kept = past.past(run=run)
    if not kept:
        raise UsageError(f"there is no run {run} of this fleet", "see `nodectl history list`")
    measured = [row.measurement for row in kept]
    table = measurements_text(measured, kind_of, everything=everything, width=terminal_width())
    rows = [{"run": row.run, "time": iso(row.time), **asdict(row.measurement)} for row in kept]
    app.show("history", {"run": run, "measurements": rows}, table)
