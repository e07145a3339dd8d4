"""`nodectl history`: What was measured of this fleet, and what drifts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.history.store import History, Past


@click.group()
def history() -> None:
    """What was measured of this fleet, and what drifts."""


@history.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """The runs of `nodectl probe`, the latest first."""
    from nodectl.cli.terminal import emit_json, result
    from nodectl.history.store import iso
    from nodectl.report.table import aligned

    with _opened(app) as opened:
        runs = opened.runs()
    if app.json:
        rows = [{"run": run, "time": iso(when), "probes": probes, "measurements": n} for run, when, probes, n in runs]
        emit_json("history", {"runs": rows})
    elif runs:
        lines = [(str(run), iso(when), probes.replace(",", ", "), str(count)) for run, when, probes, count in runs]
        result(aligned([("RUN", "TIME", "PROBES", "MEASUREMENTS"), *lines]))


@history.command()
@click.argument("run", type=click.IntRange(1))
@click.pass_obj
def show(app: App, run: int) -> None:
    """What one run measured."""
    from nodectl.cli.terminal import emit_json, result
    from nodectl.errors import UsageError
    from nodectl.probes.registry import kind_of
    from nodectl.report.measurements import measurements_table

    with _opened(app) as opened:
        found = opened.past(run=run)
    if not found:
        raise UsageError(f"no run {run} of this fleet", "see `nodectl history list`")
    if app.json:
        emit_json("history", {"run": run, "measurements": _rows(found)})
    else:
        result(measurements_table([each.measurement for each in found], kind_of))


@history.command()
@click.argument("probes", nargs=-1, metavar="[PROBE…]")
@click.pass_obj
def export(app: App, probes: tuple[str, ...]) -> None:
    """All measurements of the fleet, or of some probes, as JSON lines."""
    import json

    with _opened(app) as opened:
        for row in _rows(opened.past(probes)):
            click.echo(json.dumps(row))


@history.command()
@click.pass_obj
def drift(app: App) -> None:
    """What became worse over the last 60 runs, against its own past and its peers; warnings, exit status 0."""
    from nodectl.cli.terminal import emit_json, result
    from nodectl.history.drift import WINDOW, drifts
    from nodectl.report.findings import findings_list

    with _opened(app) as opened:
        found = list(drifts(opened.points(opened.probes(), WINDOW)).values())
    if app.json:
        emit_json("history", {"findings": [asdict(each) for each in found]})
    elif found:
        result(findings_list(found))


def _opened(app: App) -> History:
    from nodectl.common.paths import state_dir
    from nodectl.history.store import FILE, History

    return History(state_dir() / FILE, "\n".join(app.inventory.sources))


def _rows(found: list[Past]) -> list[dict[str, object]]:
    from nodectl.history.store import iso

    return [{"run": each.run, "time": iso(each.time), **asdict(each.measurement)} for each in found]
