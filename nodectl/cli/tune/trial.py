"""`nodectl tune trial`: one interleaved trial under the hosts' locks, on armed hosts, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import hold
from nodectl.cli.options import (
    WORKLOADS,
    OneOf,
    Read,
    Seconds,
    argument,
    force_option,
    option,
    option_group,
    takes,
    yes_option,
)
from nodectl.cli.rights import require_root
from nodectl.cli.terminal import ask, note
from nodectl.cli.tune.show import show_trial
from nodectl.common.counting import counted
from nodectl.common.documents import new_id
from nodectl.common.nodeset import fold
from nodectl.common.process import interruptible
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.trial import OWN, Trial
from nodectl.probes.lost import Watched
from nodectl.probes.options import Sizes
from nodectl.probes.options import duration as as_seconds
from nodectl.probes.options import sizes as as_sizes
from nodectl.probes.registry import AnyProbe, chosen, declarations
from nodectl.probes.rounds import require_two
from nodectl.transport.router import open_transport
from nodectl.trials.arming import Armed, Environment, armed
from nodectl.trials.felt import tried
from nodectl.trials.measuring import (
    TRAINING,
    Measuring,
    WithEnvironment,
    least_turn_s,
    refuse_too_short,
    workload_probe,
)
from nodectl.trials.run import TrialInterrupt, TrialRun, failed
from nodectl.trials.sides import nccl_environment, own_overrides, refuse_impossible, refuse_not_live, sides_of
from nodectl.trials.store import now, prune
from nodectl.trials.verdict import JOULE, SPEED

_USUAL, _ON_ONE = "tcp,latency", "memory"


@option_group
class _Options:
    profiles: str = option(
        "--profiles",
        f"Tuning profiles: the baseline, or `{OWN}` for what the inventory says, then the candidates.",
        required=True,
        metavar="NAME[,NAME…]",
    )
    probes: str | None = option(
        "--probes",
        f"Probes that measure the settings.  Default: {_USUAL}, of one host {_ON_ONE}; and {TRAINING}, a short "
        "training step, if it can be run.",
        metavar="NAME[,NAME…]",
    )
    pairs: int = option(
        "--pairs", "Number of pairs that are measured for each candidate.", type=click.IntRange(5, 1000), default=10
    )
    budget: float | None = option("--budget", "Time for the whole trial.", type=Read(as_seconds), metavar="SECONDS|20m")
    duration: float | None = option(
        "--duration", "Duration of one measurement.  Default: the probe's own.", type=Seconds(0.001, 3600)
    )
    sizes: tuple[int, ...] | None = option(
        "--sizes", "Message sizes.  Default: the probe's own.", type=Read(as_sizes), metavar="SIZE[,SIZE…]"
    )
    interface: str | None = option("--interface", "The network to measure.  Default: that of the host's address.")
    workload: str | None = option("--workload", "Train this program, too.", type=OneOf(WORKLOADS))
    judge_by: str = option(
        "--judge-by",
        "What decides: speed, or joules a token (a sample); the other one is only shown.",
        type=OneOf([SPEED, JOULE]),
        default=SPEED,
    )
    arguments: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A trial as it will be run; without the probes that are `optional` it goes on."""

    head: Trial
    probes: Sequence[AnyProbe]
    given: Mapping[str, object]
    optional: frozenset[str]
    ends_at: float | None


@click.command()
@takes(_Options)
@yes_option
@force_option
@include_cordoned_option
@click.pass_obj
def trial(app: App, asked: _Options, yes: bool, force: bool) -> None:
    """Measure tunings in turns, A B B A, and say which is better, worse, or neither.

    A trial sets live values only, and NCCL's variables in the environment of its measurements.  A timer on each host
    restores the former values if nodectl is gone, and so does a reboot; `tune propose` and `tune apply` keep what won.
    With --workload nothing else is measured unless --probes names it, and ARGUMENTS behind `--` go to the program.
    Exit status 3: undecided, or ended early.
    """
    plan = _planned(app, asked, monotonic())
    require_root(app)
    lines = [
        f"{fold(host.name for host in app.hosts)}: {', '.join(plan.head.candidates)} against {plan.head.baseline}",
        f"measured: {', '.join(plan.head.probes)}; what runs there meanwhile is disturbed",
        "live values only: they are restored at the end, by a timer on each host if nodectl is gone, or by a reboot",
    ]
    ask(app.hosts, f"change the settings of {counted(len(app.hosts), 'host')} in turns?", lines, yes=yes)
    try:
        # as in a probe: also before the hosts are armed SIGTERM is said, and the locks let go
        with interruptible():
            trial = _run(app, plan, force=force)
    except TrialInterrupt as end:
        _show_interrupted(app, end.trial)
        raise
    except KeyboardInterrupt:
        note("nothing was changed, and no turn was measured: nothing is kept of this trial")
        raise
    prune()
    show_trial(app, trial)
    raise SystemExit(failed(trial))


def _planned(app: App, asked: _Options, started: float) -> _Plan:
    """Return the trial before anybody is asked and anything is trained; UsageError if it cannot be."""
    if asked.arguments and asked.workload is None:
        raise UsageError(f"{asked.arguments[0]!r} is no option of a trial", "what stands behind -- is for a --workload")
    baseline, candidates = sides_of(asked.profiles.split(","))
    for profile in (baseline, *candidates):
        refuse_impossible(profile, app.hosts, app.profile_dirs)
    refuse_not_live(baseline, candidates, app.hosts, app.profile_dirs)
    given: dict[str, object] = {
        "duration_s": asked.duration,
        "sizes": Sizes(asked.sizes) if asked.sizes else None,
        "rounds": 2,
        "interface": asked.interface,
        "forks": app.forks,
    }
    probes, optional = _probes(asked, len(app.hosts))
    for probe in probes:
        if probe.between_hosts and not probe.has_ranks:
            require_two(app.hosts, probe.name)
    if asked.budget is not None:
        # not a training that nobody asked for
        certain = [probe for probe in probes if probe.name not in optional]
        refuse_too_short(asked.budget, least_turn_s(certain, given), len(candidates))
    head = _head(app, asked, baseline, candidates, probes)
    return _Plan(head, probes, given, optional, None if asked.budget is None else started + asked.budget)


def _show_interrupted(app: App, trial: Trial) -> None:
    show_trial(app, trial)
    bad = [finding for finding in trial.findings if finding.status in (Status.FAILED, Status.UNKNOWN)]
    left = fold(finding.host for finding in bad if finding.subject == "former values")
    others = f"on all hosts but {left}: see above" if left else "on all hosts"
    note(f"ended early: the former values were put back {others}")
    note(f"what was measured is kept: nodectl tune show {trial.id}")


def _probes(asked: _Options, hosts: int) -> tuple[list[AnyProbe], frozenset[str]]:
    """Return the probes, and the names of those that nobody asked for by name."""
    names = [name.strip() for name in (asked.probes or "").split(",") if name.strip()]
    optional = frozenset({TRAINING} if asked.probes is None and not asked.workload else ())
    if optional:
        names = [*(_ON_ONE if hosts == 1 else _USUAL).split(","), TRAINING]
    listed = [name for name in names if name != TRAINING]
    wanted = [*chosen(",".join(listed))] if listed else []
    if TRAINING in names:
        wanted.append(declarations()[TRAINING])
    if asked.workload:
        wanted.append(workload_probe(asked.workload, asked.arguments))
    if not wanted:
        raise UsageError("there is nothing to measure", "give --probes NAME")
    return wanted, optional


def _head(
    app: App,
    asked: _Options,
    baseline: str,
    candidates: tuple[str, ...],
    probes: Sequence[AnyProbe],
) -> Trial:
    options: dict[str, object] = {
        "duration_s": asked.duration,
        "sizes_bytes": asked.sizes,
        "interface": asked.interface,
        "judge_by": asked.judge_by,
    }
    if asked.workload:
        options |= {"workload": asked.workload, "arguments": list(asked.arguments)}
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
        candidates=candidates,
        probes=tuple(probe.name for probe in probes),
        pairs=asked.pairs,
        options=options,
    )


def _run(app: App, plan: _Plan, *, force: bool) -> Trial:
    head = plan.head
    settings = [*dict.fromkeys(key for side in head.candidates for key in tried(head.baseline, side, app.profile_dirs))]
    # an interrupted probe closes its transport; locks, leases and the way back need theirs to the end
    with hold(app, "tune trial", force=force) as holds, closing(open_transport()) as transport:
        if holds.refused:
            return replace(head, reason="the hosts are not free", findings=holds.findings)
        # as in a probe: a host that is lost in a turn is not waited for until the probe's own deadlines
        environment: Environment = {}
        watched = Watched(WithEnvironment(transport, environment), holds.heard, holds.unreached())
        measuring = Measuring(watched, app.hosts, plan.probes, plan.given, plan.optional)
        note(f"trial {head.id}")
        arm = _arm(app, head.id, environment)
        trial = TrialRun(head, measuring, arm, note, monotonic, plan.ends_at, settings).run()
    return replace(trial, findings=(*holds.findings, *trial.findings))


def _arm(app: App, trial: str, environment: Environment) -> Callable[[], AbstractContextManager[Armed]]:
    """Return what arms the hosts, which then restore their former values by themselves."""

    def nccl_of(profile: str, host: Host) -> Mapping[str, str]:
        return nccl_environment(profile, host, app.profile_dirs)

    return partial(
        armed,
        *(app.inventory.sources, app.hosts, app.transport),
        trial=trial,
        purpose=f"tune trial {trial}",
        note=note,
        environment=environment,
        nccl_of=nccl_of,
        access=app.access,
        forks=app.forks,
    )
