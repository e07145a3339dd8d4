"""`nodectl tune list` and `show`: trials that were kept, judged again."""

from __future__ import annotations

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note, terminal_width
from nodectl.model.trial import Trial
from nodectl.report.findings import findings_text
from nodectl.report.trials import trial_text, trials_table
from nodectl.trials.store import document_of, find, trials

_all_option = click.option("--all", "everything", is_flag=True, help="Show each path, each host and each finding.")


@click.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List the trials that are kept, the latest first."""
    readable: list[Trial] = []
    for trial in trials():
        if isinstance(trial, Trial):
            readable.append(trial)
        else:
            note(trial)
    app.show(
        "tune-list",
        {"trials": [_row(trial) for trial in readable]},
        trials_table(readable, terminal_width()) if readable else "",
    )
    if not (readable or app.json):
        note("no trial is kept: see `nodectl tune trial --help`")


@click.command()
@click.argument("trial", metavar="ID|last|FILE")
@_all_option
@click.pass_obj
def show(app: App, trial: str, everything: bool) -> None:
    """Show what one trial measured and said, judged again from its pairs."""
    show_trial(app, find(trial), everything=everything)


def show_trial(app: App, trial: Trial, *, everything: bool = False) -> None:
    """Show one trial as the table or the JSON that was asked for, its findings on stderr."""
    app.show("tune-trial", document_of(trial), trial_text(trial, terminal_width(), everything=everything))
    if trial.findings:
        note(findings_text(trial.findings, everything=everything))


def _row(trial: Trial) -> dict[str, object]:
    return {
        "id": trial.id,
        "started": trial.started,
        "complete": trial.complete,
        "hosts": sorted(trial.hosts),
        "probes": list(trial.probes),
        "baseline": trial.baseline,
        "summaries": [{"profile": summary.profile, "verdict": summary.verdict} for summary in trial.summaries],
    }
