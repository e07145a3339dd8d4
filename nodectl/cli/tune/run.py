"""How `nodectl tune trial` is carried out: under the hosts' locks, on armed hosts, and kept."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from nodectl.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from nodectl.model.finding import Finding
    from nodectl.model.trial import Side, Trial
    from nodectl.probes.registry import AnyProbe
    from nodectl.trials.run import Armed, Arming


def run(
    app: App,
    head: Trial,
    wanted: Sequence[AnyProbe],
    asked: Mapping[str, object],
    ends_at: float | None,
    *,
    force: bool,
    search: bool,
    training: bool | None,
    password: str | None,
) -> Trial:
    """The trial from the locks to its record; refused where the hosts are not free."""
    from nodectl.cli.terminal import note
    from nodectl.probes.locks import held
    from nodectl.trials.measuring import TRAINING, Measuring
    from nodectl.trials.run import TrialRun

    wished = frozenset() if training else frozenset({TRAINING})
    measuring = Measuring(app.transport, app.hosts, wanted, asked, wished)
    with held(app.transport, app.hosts, "tune trial", forks=app.forks, force=force, note=note) as holds:
        if holds.refused:
            return replace(head, reason="the hosts are not free", findings=holds.findings)
        note(f"trial {head.id}")
        run = TrialRun(head, measuring, _arming(app, head, password, force=force), note, monotonic, ends_at, search)
        trial = run.run()
    return replace(trial, findings=(*holds.findings, *trial.findings))


def _arming(app: App, head: Trial, password: str | None, *, force: bool) -> Arming:
    from typing import cast

    from nodectl.cli.terminal import note
    from nodectl.trials.arming.armed import Armed as ArmedHosts
    from nodectl.trials.arming.armed import Setting, armed
    from nodectl.trials.run import Arming

    def arm() -> AbstractContextManager[ArmedHosts]:
        what = f"tune trial {head.id}"
        return armed(
            app.inventory.sources,
            app.limit,
            app.hosts,
            app.transport,
            what=what,
            note=note,
            force=force,
            become_password=password,
            forks=app.forks,
        )

    def put_on(hosts: Armed, side: Side) -> tuple[Finding, ...]:
        return cast("ArmedHosts", hosts).put_on(Setting(side.label, side.profile, side.overrides))

    return Arming(arm, put_on)


def keep(app: App, trial: Trial) -> None:
    """In the history too, where it came to its end."""
    from nodectl.cli.terminal import note
    from nodectl.common.paths import state_dir
    from nodectl.history.store import FILE, History, HistoryError
    from nodectl.trials.store import prune

    prune()
    if not trial.complete:
        return
    try:
        with History(state_dir() / FILE, "\n".join(app.inventory.sources)) as history:
            for summary in trial.summaries:
                verdicts = [verdict for verdict in trial.verdicts if verdict.profile == summary.profile]
                history.add_trial(summary, trial.baseline.label, verdicts)
    except HistoryError as error:
        note(f"nodectl: not kept in the history: {error.message}\n  try: {error.remedy}")
