"""`nodectl accept`: Accept or reject each node, with evidence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option, keep_in_ledger
from nodectl.cli.events import report_acceptance
from nodectl.cli.evidence import take
from nodectl.cli.measuring import hold, look_at, note_not_kept, refuse_taken
from nodectl.cli.options import (
    FOLDER,
    OneOf,
    Read,
    force_option,
    option,
    option_group,
    output_option,
    takes,
)
from nodectl.cli.rights import tell_unseen
from nodectl.cli.terminal import as_json, note, result, terminal_width, writing
from nodectl.common.documents import new_id
from nodectl.common.process import interruptible
from nodectl.errors import UsageError
from nodectl.ledger.accept import store
from nodectl.ledger.accept.judge import compared
from nodectl.ledger.accept.means import Means, look
from nodectl.ledger.accept.steps import Level, make_plan
from nodectl.ledger.history.database import HistoryError
from nodectl.model.acceptance import Acceptance, NodeVerdict, Seen
from nodectl.model.status import Status, exit_status
from nodectl.probes.lost import Watched
from nodectl.probes.options import duration
from nodectl.probes.registry import kind_of
from nodectl.recordings.save import save
from nodectl.recordings.source import LiveSource
from nodectl.report.acceptance import acceptance_text, plan_text
from nodectl.report.metrics import acceptance_metrics

_LEVELS = ("quick", "standard", "burn-in")
_INTERRUPTED_END_S = 10.0


@option_group
class _Options:
    level: str = option("--level", "How much is tried, and for how long.", type=OneOf(_LEVELS), default="standard")
    budget: float | None = option(
        "--budget",
        "Time for the whole acceptance; a burn-in takes what the other steps leave (without a budget: 2 hours).",
        type=Read(duration),
        metavar="SECONDS|30m|8h",
    )
    tolerance: int | None = option(
        "--tolerance",
        "Reject a host that lost so much of its last accepted figures (default: no comparison).",
        type=click.IntRange(0, 100),
        metavar="PERCENT",
    )
    dry_run: bool = option("--dry-run", "Print the plan with its times, and start nothing.")
    cordon: bool = option("--cordon", "Cordon the hosts that are rejected (`nodectl ledger`).")
    out: Path | None = option(
        "-o --out", "Write the result as JSON and the hosts' raw outputs into this folder.", type=FOLDER, metavar="DIR"
    )


@click.command()
@takes(_Options)
@force_option
@include_cordoned_option
@output_option("table", "json", "prometheus")
@click.pass_obj
def accept(app: App, asked: _Options, force: bool) -> None:
    """Accept or reject each node, with evidence.

    Health, then each node by itself, pairs and the whole fleet; a node that fails a step leaves the following ones.
    The plan is shown with its times first.

    quick: some minutes.  standard: everything once.  burn-in: standard, then load for hours, and what grows meanwhile.

    Exit status 1: a node is rejected; 3: of one it could not be told; 0: all are accepted.
    """
    means = look(app.transport, app.hosts, app.forks)
    steps = make_plan(means, Level(asked.level), asked.budget, store.known_seconds(app.fleet, asked.level, len(means)))
    identity, now = new_id(datetime.now(UTC)), time.time()
    acceptance = Acceptance(identity, asked.level, app.fleet, now, None, _nature(means), __version__, steps)
    tell_unseen(app)
    app.on_event()  # refused before anything is measured
    befores = {} if asked.tolerance is None else {name: store.last_accepted(app.fleet, name) for name in means}
    plan = plan_text(acceptance.steps, terminal_width())
    if asked.dry_run:
        rows, accepted = store.document_of(acceptance)["steps"], {name: one.id for name, one in befores.items()}
        app.show("accept-plan", {"level": acceptance.level, "steps": rows, "accepted": accepted}, plan)
        return
    note(plan)
    if asked.out is not None:
        with writing(asked.out, "--out"):  # not known only after hours
            asked.out.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(asked.out.iterdir()):
                raise UsageError(f"--out {asked.out}: the folder is not empty", "name a new folder for each acceptance")
    acceptance = _carried_out(app, acceptance, means, force=force, limited=asked.budget is not None)
    if asked.tolerance is not None:
        acceptance = compared(acceptance, befores, asked.tolerance, means)
        store.save(acceptance, store.folder_of(acceptance.id))
    keep_in_ledger(app, acceptance, cordon=asked.cordon)
    _conclude(app, acceptance, asked.out)


def _nature(means: Mapping[str, Means]) -> str:
    if not any(host.lab for host in means.values()):
        return "measured"
    recorded = sorted({host.recorded for host in means.values() if host.recorded})
    return f"lab; hardware recorded: {', '.join(recorded)}" if recorded else "lab"


def _carried_out(
    app: App, acceptance: Acceptance, means: Mapping[str, Means], *, force: bool, limited: bool
) -> Acceptance:
    """Under the hosts' locks; the process ends here where somebody else has them, or it is ended early."""
    from nodectl.ledger.accept.course import Course, Surroundings

    hosts = {host.name: host for host in app.hosts if host.name in means}
    folder = store.folder_of(acceptance.id)
    latest = acceptance

    def keep(now: Acceptance) -> None:
        nonlocal latest
        latest = now
        with writing(folder, remedy="make room there: what is measured has to be kept"):
            store.save(now, folder)

    with interruptible(deaf_s=_INTERRUPTED_END_S):
        try:
            with hold(app, f"accept {acceptance.level}", force=force) as holds:
                if holds.refused:
                    refuse_taken(app, holds, "accept", {})
                watched = Watched(app.transport, holds.heard, holds.unreached())
                around = Surroundings(hosts, means, watched, look_at(app, watched), note, app.forks, app.profile_dirs)
                # what goes on beside, where the operator went on, is a remark on these hosts
                keep(replace(acceptance, seen=tuple(Seen("health", finding) for finding in holds.findings)))
                return Course(around, latest, keep, limited=limited).run()
        except KeyboardInterrupt:
            found = f"what it found so far: {folder / store.DOCUMENT}" if latest.hosts else "nothing was tried yet"
            note(f"the acceptance was ended early; {found}")
            raise


def _conclude(app: App, acceptance: Acceptance, out: Path | None) -> None:
    folder = store.folder_of(acceptance.id)
    try:
        with app.history() as history:
            history.add([taken.measurement for taken in acceptance.taken])
    except HistoryError as error:
        note_not_kept(error)
    is_whole = True
    try:
        rejected = [row for row in acceptance.hosts if row.verdict is NodeVerdict.REJECTED]
        own = [one.finding for row in rejected for one in row.reasons if one.finding.host == row.host]
        take(app, LiveSource(app.hosts, app.transport, app.forks), app.hosts, own)
        if out is not None:
            is_whole = _write_out(app, acceptance, out)
    finally:
        result(_rendered(acceptance, app.output, folder).rstrip("\n"))
        note(f"kept: {folder / store.DOCUMENT}")
        report_acceptance(app.on_event(), acceptance)
    if status := exit_status(host.verdict.status for host in acceptance.hosts):
        raise SystemExit(status)
    if not is_whole:
        raise SystemExit(exit_status([Status.UNKNOWN]))


def _rendered(acceptance: Acceptance, form: str, folder: Path) -> str:
    if form == "prometheus":
        return acceptance_metrics(acceptance, kind_of)
    if form == "json":
        return as_json("accept", {"folder": str(folder), **store.document_of(acceptance)})
    return acceptance_text(acceptance, terminal_width())


def _write_out(app: App, acceptance: Acceptance, folder: Path) -> bool:
    """Write the document and the hosts' raw outputs, as `nodectl record` does; return whether all could be written."""
    tried = {row.host for row in acceptance.hosts}
    source = LiveSource(tuple(host for host in app.hosts if host.name in tried), app.transport, app.forks)
    with writing(folder, "--out"):
        store.save(acceptance, folder)
        saved = save(source, folder / "recordings", app.profile_dirs, mask=False)
    for host, reason in saved.failed.items():
        note(f"{host}: no raw outputs: {reason}")
    note(f"written{' in part' if saved.failed else ''}: {folder}")
    return not saved.failed
