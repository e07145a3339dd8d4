"""`nodectl tune trial`: one interleaved trial under the hosts' locks, on armed hosts, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nodectl.cli import completing
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import hold, note_not_kept
from nodectl.cli.options import WORKLOADS, LateHelp, OneOf, Read, Seconds, force_option, profile_names, yes_option
from nodectl.cli.question import ask
from nodectl.cli.terminal import note
from nodectl.cli.tune.show import show_trial
from nodectl.common.counting import counted
from nodectl.common.interrupts import interruptible
from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.errors import UsageError
from nodectl.probes.options import Sizes
from nodectl.probes.options import duration as as_seconds
from nodectl.probes.options import names as as_names
from nodectl.probes.options import sizes as as_sizes

if TYPE_CHECKING:
    from nodectl.model.finding import Finding
    from nodectl.model.trial import Side, Trial
    from nodectl.probes.registry import AnyProbe
    from nodectl.trials.learning import Learning

# candidates of a space that are drawn at most: a budget never has room for more
_DRAWN = 500
_BUDGET_S = 1200.0
_LOSS_STEPS = 100


def trial_option(name: str, field: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option whose help ends with what the probes take for that field in a trial, as they declare it."""
    return click.option(name, cls=LateHelp, ending=partial(_trial_defaults, field), **attributes)


def _trial_defaults(field: str) -> str:
    from nodectl.probes.registry import declarations
    from nodectl.trials.measuring import trial_defaults

    shown = {probe: _shown(value) for probe, value in trial_defaults(field).items()}
    usual = Counter(shown.values()).most_common(1)[0][0] if set(shown) == set(declarations()) else ""
    words = [f"{probe}: {text}" for probe, text in shown.items() if text != usual]
    words += [f"others: {usual}"] if usual else []
    return f"{', '.join(words)}."


def _shown(value: object) -> str:
    """A default as it would be typed."""
    if sizes := getattr(value, "bytes", None):
        return ",".join(format_size(size_bytes).replace(" ", "") for size_bytes in sizes)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@click.command()
@click.option(
    "--profiles",
    cls=LateHelp,
    shell_complete=completing.several_of(completing.profiles("tuning")),
    ending=partial(profile_names, "tuning"),
    metavar="NAME[,NAME…]",
    help="Tuning profiles that are compared; the first is the baseline.",
)
@click.option(
    "--space", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="Search the values of this file."
)
@click.option(
    "--baseline",
    metavar="NAME",
    help="Profile that the others are compared with; `own`: what the inventory says of each host.",
)
@click.option(
    "--probes",
    default="tcp,latency",
    show_default=True,
    metavar="NAME[,NAME…]",
    shell_complete=completing.several_of(completing.probes),
    help="Probes that measure the settings.",
)
@click.option(
    "--pairs",
    type=click.IntRange(5, 1000),
    default=10,
    show_default=True,
    help="Number of pairs that are measured for each candidate.",
)
@click.option(
    "--budget",
    type=Read(as_seconds),
    metavar="SECONDS|20m",
    help="Time for the whole trial.  A search takes 20m by default.",
)
@trial_option("--duration", "duration_s", type=Seconds(0.001, 3600), help="Duration of one measurement.")
@trial_option(
    "--repetitions", "repetitions", type=click.IntRange(1, 100), help="Repetitions of a measurement in one turn."
)
@click.option(
    "--training/--no-training", default=None, help="Measure a short training step, too.  Default: if it can be run."
)
@trial_option("--sizes", "sizes", type=Read(as_sizes), metavar="SIZE[,SIZE…]", help="Message sizes.")
@trial_option("--collectives", "collectives", type=Read(as_names), metavar="NAME[,NAME…]")
@click.option(
    "--paths",
    type=OneOf(["all", "ring", "first", "sample"]),
    default="ring",
    show_default=True,
    help="Which pairs of hosts tcp and latency measure.",
)
@trial_option("--streams", "streams", type=click.IntRange(1, 128), help="Number of streams at the same time.")
@click.option("--interface", help="The network to measure.  Default: that of the host's address.")
@click.option("--workload", type=OneOf(WORKLOADS), help="Train this program, too; a space may name its options.")
@click.option(
    "--loss-steps",
    type=click.IntRange(0, 10**6),
    default=_LOSS_STEPS,
    show_default=True,
    help="Reject options whose held-out loss after this number of steps is over 1 % worse; 0: none.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed with which the candidates of a space are drawn."
)
@yes_option
@force_option
@include_cordoned_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def trial(
    app: App,
    profiles: str | None,
    space: Path | None,
    baseline: str | None,
    probes: str,
    pairs: int,
    budget: float | None,
    duration: float | None,
    repetitions: int | None,
    training: bool | None,
    sizes: tuple[int, ...] | None,
    collectives: tuple[str, ...] | None,
    paths: str,
    streams: int | None,
    interface: str | None,
    workload: str | None,
    loss_steps: int,
    seed: int,
    yes: bool,
    force: bool,
    arguments: tuple[str, ...],
) -> None:
    """Measure tunings in turns, A B B A, and say which is better, worse, or neither.

    Every host is armed first: it puts its former values back by itself when nodectl is gone.  At the end they are put
    back in any case; `tune propose` and `tune apply` keep what won.  With --workload nothing else is measured unless
    --probes names it, and ARGUMENTS behind `--` go to the program.  Exit status 3: undecided, or ended early.
    """
    from nodectl.trials.measuring import least_turn_s, refuse_too_short
    from nodectl.trials.run import TrialInterrupt, failed

    started = monotonic()
    against, candidates = _sides(app, profiles, space, baseline, seed, arguments)
    learning = _learning(candidates, workload, loss_steps, arguments)
    if learning is not None:
        asked_for = click.get_current_context().get_parameter_source("probes") is not ParameterSource.DEFAULT
        probes, training = probes if asked_for else "", bool(training)
    asked: dict[str, object] = {
        "duration_s": duration,
        "repetitions": repetitions,
        "sizes": Sizes(sizes) if sizes else None,
        "streams": streams,
        "pairs": paths,
        "interface": interface,
        "collectives": collectives,
        "forks": app.forks,
    }
    wanted = _probes(probes, training, learning)
    budget = budget or (_BUDGET_S if space else None)
    if budget is not None:  # before anybody is asked, or anything is trained
        refuse_too_short(budget, least_turn_s(_certain(wanted, training), asked), 1 if space else len(candidates))
    head = _head(app, against, candidates, pairs, wanted, asked, learning)
    _ask(app, head, searched=space is not None, yes=yes)
    ends_at = None if budget is None else started + budget
    try:
        # as in a probe: also before the hosts are armed SIGTERM is said, and the locks let go
        with interruptible():
            trial = _run(
                app,
                head,
                wanted,
                asked,
                ends_at,
                force=force,
                search=space is not None,
                training=training,
                learning=learning,
            )
    except TrialInterrupt as end:
        _show_interrupted(app, end.trial)
        raise
    except KeyboardInterrupt:
        note("nothing was changed, and no turn was measured: nothing is kept of this trial")
        raise
    _keep(app, trial)
    show_trial(app, trial)
    raise SystemExit(failed(trial))


def _show_interrupted(app: App, trial: Trial) -> None:
    """What was measured, what became of the settings, and where to see it again."""
    from nodectl.model.status import Status

    show_trial(app, trial)
    bad = [finding for finding in trial.findings if finding.status in (Status.FAILED, Status.UNKNOWN)]
    left = fold(finding.host for finding in bad if finding.subject == "former values")
    others = f"on all hosts but {left}: see above" if left else "on all hosts"
    note(f"ended early: the former values were put back {others}")
    note(f"what was measured is kept: nodectl tune show {trial.id}")


def _sides(
    app: App,
    profiles: str | None,
    space: Path | None,
    baseline: str | None,
    seed: int,
    arguments: tuple[str, ...],
) -> tuple[Side, tuple[Side, ...]]:
    """Return who is tried against whom; refused where a host cannot have it, before any is asked."""
    from nodectl.trials.sides import (
        OWN,
        overruled,
        possible,
        refuse_impossible,
        side_of,
        sides_of_profiles,
        sides_of_space,
    )
    from nodectl.trials.space import read_space

    if (profiles is None) == (space is None):
        raise UsageError(
            "tune trial needs either profiles to compare (--profiles) or a space to search (--space)",
            "give either --profiles stock,NAME or --space FILE",
        )
    folders = app.profile_dirs
    if space is not None:
        against = side_of(baseline or OWN)
        refuse_impossible(against, app.hosts, folders)
        drawn = read_space(space).in_turn(_DRAWN, seed)
        kept, reasons = possible(sides_of_space(drawn, against), app.hosts, folders)
        for reason in reasons:
            note(f"left out: {reason}")
        return against, tuple(_changing(app, against, kept, arguments))
    against, candidates = sides_of_profiles((profiles or "").split(","), baseline)
    for side in (against, *candidates):
        refuse_impossible(side, app.hosts, folders)
        for line in overruled(side, app.hosts, folders):
            note(line)
    return against, candidates


def _changing(app: App, against: Side, sides: Sequence[Side], arguments: tuple[str, ...]) -> list[Side]:
    """Return those that change something: no value that the hosts keep anyway, no option that does nothing."""
    from nodectl.checks.kernel.settings import is_held
    from nodectl.trials.effective import effective, keys_of, meaningful, read_live
    from nodectl.trials.sides import kernel_keys

    live = read_live(app.transport, app.hosts, keys_of(sides), app.forks)
    kept, reasons = effective(sides, kernel_keys(against, app.hosts, app.profile_dirs), live, is_held)
    kept, more = meaningful(kept, arguments)
    for reason in (*reasons, *more):
        note(reason)
    if not kept:
        raise UsageError(
            "no value of the space would change anything on these hosts", "see what was left out; nothing was changed"
        )
    return kept


def _learning(
    candidates: Sequence[Side], workload: str | None, steps: int, arguments: tuple[str, ...]
) -> Learning | None:
    """The workload that is trained; UsageError where options of one are given, and none is."""
    from nodectl.trials.learning import Learning
    from nodectl.trials.space import flag_words

    if workload is not None:
        return Learning(workload, arguments, steps, note)
    if arguments:
        raise UsageError(f"{arguments[0]!r} is no option of a trial", "what stands behind -- is for a --workload")
    if any(flag_words(side.run_with) for side in candidates):
        raise UsageError("the space names options of a workload, but no workload is trained", "give --workload llm")
    return None


def _probes(names: str, training: bool | None, learning: Learning | None) -> list[AnyProbe]:
    from nodectl.probes.registry import chosen, declarations
    from nodectl.trials.measuring import TRAINING, comparable

    named = [name.strip() for name in names.split(",")]
    wanted = comparable(chosen(names), named) if names.strip() else []
    if training is not False:
        wanted.append(declarations()[TRAINING])
    wanted += [learning.probe] if learning else []
    if not wanted:
        raise UsageError("there is nothing to measure", "give --probes NAME, or leave --no-training away")
    return wanted


def _certain(probes: Sequence[AnyProbe], training: bool | None) -> list[AnyProbe]:
    """Those that are measured whatever comes: a training that nobody asked for is left out where it cannot be run."""
    from nodectl.trials.measuring import TRAINING

    return [probe for probe in probes if training or probe.name != TRAINING]


def _head(
    app: App,
    baseline: Side,
    candidates: Sequence[Side],
    pairs: int,
    probes: Sequence[AnyProbe],
    asked: Mapping[str, object],
    learning: Learning | None,
) -> Trial:
    from datetime import UTC, datetime

    from nodectl import __version__
    from nodectl.common.documents import new_id
    from nodectl.model.trial import Trial
    from nodectl.trials.ledger import now
    from nodectl.trials.measuring import trial_defaults
    from nodectl.trials.settings import own_overrides

    # of those that only one probe has, what it takes by itself
    own = {name: next(iter(trial_defaults(name).values())) for name in ("streams", "collectives", "sizes")}
    taken = {name: own.get(name) if value is None else value for name, value in asked.items()}
    kept = ("duration_s", "repetitions", "streams", "pairs", "interface", "collectives")
    moment = now()
    return Trial(
        id=new_id(datetime.now(UTC)),
        started=moment,
        ended=moment,
        complete=False,
        reason="",
        nodectl=__version__,
        inventory=app.inventory.sources,
        limit=app.limit,
        hosts={host.name: own_overrides(host) for host in app.hosts},
        baseline=baseline,
        candidates=tuple(candidates),
        probes=tuple(probe.name for probe in probes),
        pairs=pairs,
        options={
            **{name: taken[name] for name in kept},
            "sizes_bytes": getattr(taken["sizes"], "bytes", ()),
            **({} if learning is None else learning.record),
        },
    )


def _ask(app: App, head: Trial, *, searched: bool, yes: bool) -> None:
    names = [candidate.label for candidate in head.candidates]
    what = f"{counted(len(names), 'candidate')} of a space" if searched else ", ".join(names)
    lines = [
        f"{fold(host.name for host in app.hosts)}: {what} against {head.baseline.label}",
        f"measured: {', '.join(head.probes)}; what runs there meanwhile is disturbed",
        "each host is armed first and puts its former values back by itself; at the end they are put back in any case",
    ]
    ask(app.hosts, f"change the settings of {counted(len(app.hosts), 'host')} in turns?", lines, yes=yes)


def _run(
    app: App,
    head: Trial,
    wanted: Sequence[AnyProbe],
    asked: Mapping[str, object],
    ends_at: float | None,
    *,
    force: bool,
    search: bool,
    training: bool | None,
    learning: Learning | None,
) -> Trial:
    """The trial from the locks to its record; refused where the hosts are not free."""
    from nodectl.probes.lost import Watched
    from nodectl.transport.router import open_transport
    from nodectl.trials.arming import armed
    from nodectl.trials.felt import tried
    from nodectl.trials.measuring import TRAINING, Measuring
    from nodectl.trials.run import TrialRun

    settings = [*dict.fromkeys(key for side in head.candidates for key in tried(head.baseline, side, app.profile_dirs))]
    # an interrupted probe closes its transport; locks, leases and the way back need theirs to the end
    with hold(app, "tune trial", force=force, changes=True) as holds, closing(open_transport()) as transport:
        if holds.refused:
            return replace(head, reason="the hosts are not free", findings=holds.findings)
        # as in a probe: a host that is lost in a turn is not waited for until the probe's own deadlines
        watched = Watched(transport, holds.heard, holds.unreached())
        measuring = Measuring(watched, app.hosts, wanted, asked, frozenset(() if training else (TRAINING,)))
        note(f"trial {head.id}")
        unequal: list[Finding] = []
        if learning is not None:
            kept, unequal = learning.equal(watched, app.hosts, asked, head.candidates, partial(_left_s, ends_at))
            if not kept:
                return replace(
                    head, reason="no candidate reaches the loss that the baseline reaches", findings=tuple(unequal)
                )
            head = replace(head, candidates=tuple(kept))
        arm = partial(
            armed,
            app.inventory.sources,
            app.limit,
            app.hosts,
            app.transport,
            trial=head.id,
            purpose=f"tune trial {head.id}",
            note=note,
            force=force,
            access=app.access,
            forks=app.forks,
        )
        trial = TrialRun(head, measuring, arm, note, monotonic, ends_at, search, settings).run()
    return replace(trial, findings=(*holds.findings, *unequal, *trial.findings))


def _left_s(ends_at: float | None) -> float | None:
    return None if ends_at is None else ends_at - monotonic()


def _keep(app: App, trial: Trial) -> None:
    """In the history too, where it came to its end."""
    from nodectl.history.database import HistoryError
    from nodectl.trials.store import prune

    prune()
    if not trial.complete:
        return
    try:
        with app.history() as history:
            for summary in trial.summaries:
                verdicts = [verdict for verdict in trial.verdicts if verdict.profile == summary.profile]
                history.add_trial(summary, trial.baseline.label, verdicts)
    except HistoryError as error:
        note_not_kept(error)
