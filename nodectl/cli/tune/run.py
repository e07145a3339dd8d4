"""How `nodectl tune trial` is carried out: under the hosts' locks, on armed hosts, and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from nodectl.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodectl.model.trial import Trial
    from nodectl.probes.registry import AnyProbe


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
    from nodectl.trials.arming.armed import armed
    from nodectl.trials.measuring import TRAINING, Measuring
    from nodectl.trials.run import TrialRun

    wished = frozenset() if training else frozenset({TRAINING})
    measuring = Measuring(app.transport, app.hosts, wanted, asked, wished)
    with held(app.transport, app.hosts, "tune trial", forks=app.forks, force=force, note=note) as holds:
        if holds.refused:
            return replace(head, reason="the hosts are not free", findings=holds.findings)
        note(f"trial {head.id}")
        arm = partial(
            armed,
            app.inventory.sources,
            app.limit,
            app.hosts,
            app.transport,
            purpose=f"tune trial {head.id}",
            note=note,
            force=force,
            become_password=password,
            forks=app.forks,
        )
        trial = TrialRun(head, measuring, arm, note, monotonic, ends_at, search).run()
    return replace(trial, findings=(*holds.findings, *trial.findings))


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
