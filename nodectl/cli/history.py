"""`nodectl history`: What was measured of this fleet."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from nodectl.cli import completing
from nodectl.cli.app import App
from nodectl.cli.terminal import note, terminal_width
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.ledger.history.database import iso
from nodectl.ledger.history.store import Past
from nodectl.probes.registry import declarations, kind_of
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
    app.show("history", {"run": run, "measurements": [_row(row) for row in kept]}, table)


@history.command()
@click.argument("probes", nargs=-1, metavar="[PROBE…]", shell_complete=completing.one_of(completing.probes))
@click.pass_obj
def export(app: App, probes: tuple[str, ...]) -> None:
    """Print all measurements of the fleet, or of some probes, as JSON lines."""
    with app.history() as past:
        names = past.probes()
        for name in sorted({*probes} - {*names}):
            if name not in declarations():
                hint = meant(name, {*names, *declarations()})
                raise UsageError(
                    f"there is no probe '{name}'", f"{hint}kept are measurements of: {', '.join(names) or 'none'}"
                )
            note(f"nodectl: no measurement of '{name}' is kept\n  try: kept are those of: {', '.join(names) or 'none'}")
        for kept in past.past(probes):
            click.echo(json.dumps(_row(kept)))


def _row(kept: Past) -> dict[str, object]:
    return {"run": kept.run, "time": iso(kept.time), **asdict(kept.measurement)}
