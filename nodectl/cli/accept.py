"""`nodectl accept`: Say which nodes are good, which are not, and by what evidence."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option, keep_in_ledger, nothing_left, recognise
from nodectl.cli.evidence import take
from nodectl.cli.measuring import hold, look_at, note_not_kept, refuse_taken
from nodectl.cli.options import (
    EXISTING_FILE,
    FILE,
    FOLDER,
    WRITE_HELP,
    OneOf,
    Read,
    force_option,
    option,
    option_group,
    output_option,
    takes,
)
from nodectl.cli.rights import tell_unseen
from nodectl.cli.slurm_nodes import Drain, Via, taken
from nodectl.cli.telling import tell_acceptance
from nodectl.cli.terminal import as_json, note, put, terminal_width, writing
from nodectl.common.counting import counted
from nodectl.common.documents import new_id
from nodectl.common.files import replace_file
from nodectl.common.nodeset import fold
from nodectl.common.process import interruptible
from nodectl.common.units import time_text
from nodectl.errors import NodectlError, UsageError
from nodectl.ledger.accept import store
from nodectl.ledger.accept.certificate import NAME, ChangedError, certificate, check, refuse_no_key
from nodectl.ledger.accept.certificate import sign as signed
from nodectl.ledger.accept.means import Means, look, refuse_twins
from nodectl.ledger.accept.steps import Level, make_plan
from nodectl.ledger.accept.store import DOCUMENT, refuse_strange, refuse_untried
from nodectl.ledger.history.database import HistoryError, iso
from nodectl.model.acceptance import Acceptance, NodeVerdict, Seen, StepState
from nodectl.model.finding import Finding
from nodectl.model.status import Status, exit_status
from nodectl.probes.lost import Watched
from nodectl.probes.options import duration
from nodectl.probes.registry import kind_of
from nodectl.recordings.save import save
from nodectl.recordings.source import LiveSource
from nodectl.report.acceptance import acceptance_text, plan_text
from nodectl.report.metrics import acceptance_metrics
from nodectl.report.page.content import Content
from nodectl.report.page.page import report_html

_LEVELS = ("quick", "standard", "burn-in")
_INTERRUPTED_END_S = 10.0
# of the nodes that are not accepted, so many are recorded for their vendor
_MOST_RECORDED = 16
_REPORT = "report.html"
_NONCE = re.compile(r"[A-Za-z0-9._:-]{8,128}")


def _plain_nonce(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NONCE.fullmatch(value):
        raise click.BadParameter("give 8 to 128 letters, digits and . _ : -, of which nobody knew before")
    return value


@option_group
class _Options:
    level: str = option("--level", "How much is tried, and for how long.", type=OneOf(_LEVELS), default="standard")
    budget: float | None = option(
        "--budget",
        "Time for the whole acceptance; a burn-in takes what the other steps leave (without a budget: 2 hours).",
        type=Read(duration),
        metavar="SECONDS|30m|8h",
    )
    resume: str | None = option(
        "--resume", "Continue an acceptance that was ended early.", is_flag=False, flag_value="last", metavar="[ID]"
    )
    dry_run: bool = option("--dry-run", "Print the plan with its times, and start nothing.")
    cordon: bool = option("--cordon", "Cordon the hosts that are rejected (`nodectl ledger`).")
    slurm: Via
    out: Path | None = option("-o --out", "Copy all files into this folder.", type=FOLDER, metavar="DIR")
    write: Path | None = option("--write", WRITE_HELP, type=FILE)
    sign: Path | None = option("--sign", "Sign the certificate.", type=EXISTING_FILE, metavar="KEY")
    verify: Path | None = option(
        "--verify", "Check a certificate; no host is asked.", type=EXISTING_FILE, metavar="FILE"
    )
    signers: Path | None = option(
        "--signers",
        "With --verify: a file of allowed signers (ssh-keygen); the certificate must be signed by one of them.",
        type=EXISTING_FILE,
        metavar="FILE",
    )
    nonce: str | None = option(
        "--nonce",
        "A text that the certificate repeats, so that no older one can take its place (default: random).",
        callback=_plain_nonce,
        metavar="TEXT",
    )


@click.command()
@takes(_Options)
@force_option
@include_cordoned_option
@output_option("table", "json", "prometheus")
@click.pass_obj
def accept(app: App, asked: _Options, force: bool) -> None:
    """Say which nodes are good, which are not, and by what evidence.

    Health, then each node by itself, pairs, growing groups and the whole fleet; a node that fails a step leaves the
    following ones.  The plan is shown with its times first.

    quick: some minutes.  standard: everything once.  burn-in: standard, then load for hours, and what grows meanwhile.

    Exit status 1: a node is rejected; 3: of one it could not be told; 0: all are accepted.
    """
    if asked.signers and not asked.verify:
        raise click.UsageError("--signers needs --verify")
    if asked.verify:
        _verify(app, asked.verify, asked.signers, asked.nonce)
        return
    if asked.sign is not None:
        refuse_no_key(asked.sign)
    begun = None if asked.resume is None else _begun(app, asked.resume, asked.nonce)
    with taken(app, None if asked.dry_run else asked.slurm, "accept", asked.budget) as drain:
        _judge(app, asked, begun, drain, force=force)


def _judge(app: App, asked: _Options, begun: Acceptance | None, drain: Drain, *, force: bool) -> None:
    if begun is None:
        acceptance, means = _planned(app, asked.level, asked.budget, asked.nonce)
    else:
        acceptance, means = _again(app, begun)
    tell_unseen(app)
    plan = plan_text(acceptance.steps, terminal_width())
    if asked.dry_run:
        app.show("accept-plan", {"level": acceptance.level, "steps": store.document_of(acceptance)["steps"]}, plan)
        return
    note(plan)
    acceptance = _carried_out(app, acceptance, means, force=force, limited=asked.budget is not None)
    rejected = [row for row in acceptance.hosts if row.verdict is NodeVerdict.REJECTED]
    drain({row.host: [seen.finding for seen in row.reasons] for row in rejected})
    keep_in_ledger(app, acceptance, cordon=asked.cordon)
    _conclude(app, acceptance, app.output, asked.write, asked.out, asked.sign)


def accepted(app: App) -> Acceptance:
    """Return a whole quick acceptance of the App's hosts, which the history and the ledger keep."""
    acceptance, means = _planned(app, "quick", None, None)
    acceptance = _carried_out(app, acceptance, means, force=False, limited=False)
    keep_in_ledger(app, acceptance, cordon=False)
    _keep_measurements(app, acceptance)
    return acceptance


def _begun(app: App, name: str, nonce: str | None) -> Acceptance:
    begun = store.latest(app.fleet, complete=False) if name == "last" else store.find(name)
    if begun is None:
        raise UsageError("no acceptance of this fleet was ended early", "begin one: nodectl accept")
    if begun.ended is not None:
        raise UsageError(f"acceptance {begun.id} has come to its end", "begin another: nodectl accept")
    refuse_strange(begun, app.fleet)
    if nonce not in (None, begun.nonce):
        first_nonce = begun.nonce or "none"
        raise UsageError(f"acceptance {begun.id} was begun with another nonce, {first_nonce}", "begin one anew")
    return begun


def _planned(app: App, level: str, budget: float | None, nonce: str | None) -> tuple[Acceptance, Mapping[str, Means]]:
    means = look(app.transport, app.hosts, app.forks)
    refuse_twins(means)
    elsewhere = recognise(app, {name: host.parts for name, host in means.items()})
    means = {name: host for name, host in means.items() if name not in elsewhere}
    if not means:
        raise nothing_left(sorted(elsewhere))
    usual_s = store.known_seconds(app.fleet, level, len(means))
    steps = make_plan(means, Level(level), budget, usual_s)
    now = time.time()
    acceptance = Acceptance(
        new_id(datetime.now(UTC)), level, app.fleet, now, None, _nature(means), __version__, steps,
        nonce=nonce or secrets.token_hex(16), asked=_asked(app, level, budget),
    )  # fmt: skip
    return acceptance, means


def _asked(app: App, level: str, budget: float | None) -> str:
    """Return what the acceptance is to be of, before any host has answered."""
    hosts = [host.name for host in app.hosts]
    limited = f", within {time_text(budget)}" if budget is not None else ""
    return f"{level} of {counted(len(hosts), 'host')}{limited}: {fold(hosts)}"


def _again(app: App, begun: Acceptance) -> tuple[Acceptance, Mapping[str, Means]]:
    """Return the acceptance that was begun, on the hosts that it was begun on."""
    names = {name for step in begun.steps for name in step.hosts}
    there = {host.name for host in app.hosts}
    if not names <= there:
        missing = fold(sorted(names - there))
        raise UsageError(
            f"acceptance {begun.id} also covers {missing}, which the inventory or --limit leaves out",
            "select the hosts with which it was begun; cordoned ones need --include-cordoned",
        )
    means = look(app.transport, [host for host in app.hosts if host.name in names], app.forks)
    refuse_untried(begun, means)
    states = [step.state for step in begun.steps if step.state is not StepState.LEFT_OUT]
    note(f"acceptance {begun.id}: done are {states.count(StepState.DONE)} of {len(states)} steps")
    return begun, means


def _nature(means: Mapping[str, Means]) -> str:
    """Return what the figures are of."""
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
                new = [row for finding in holds.findings if (row := Seen("health", finding)) not in acceptance.seen]
                keep(replace(acceptance, seen=(*acceptance.seen, *new)))
                return Course(around, latest, keep, limited=limited).run()
        except KeyboardInterrupt:
            if (folder / store.DOCUMENT).exists():
                note(
                    f"the acceptance was ended early and is kept; continue it: nodectl accept --resume {acceptance.id}"
                )
            else:
                note("the acceptance was ended before its first step, and nothing is kept")
            raise


def _conclude(
    app: App, acceptance: Acceptance, form: str, write: Path | None, out: Path | None, sign: Path | None
) -> None:
    """Write the certificate and what a vendor asks for, show the verdicts, end with their status."""
    folder = store.folder_of(acceptance.id)
    text = certificate(acceptance, (folder / store.DOCUMENT).read_bytes(), time.time())
    _keep_measurements(app, acceptance)
    try:
        replace_file(folder / NAME, text)
        replace_file(folder / _REPORT, _report(acceptance))
        _record_rejected(app, acceptance, folder)
        take(app, LiveSource(app.hosts, app.transport, app.forks), app.hosts, _rejecting(acceptance))
        if sign is not None:
            replace_file(folder / NAME, signed(text, sign))
        if out is not None:
            with writing(out, "--out"):
                shutil.copytree(folder, out, dirs_exist_ok=True)
    finally:
        put(_rendered(acceptance, form, folder).rstrip("\n"), write)
        note(f"certificate and evidence: {out or folder}")
        tell_acceptance(app, acceptance)
    if status := exit_status(host.verdict.status for host in acceptance.hosts):
        raise SystemExit(status)


def _rendered(acceptance: Acceptance, form: str, folder: Path) -> str:
    if form == "prometheus":
        return acceptance_metrics(acceptance, kind_of)
    if form == "json":
        return as_json("accept", {"folder": str(folder), **store.document_of(acceptance)})
    return acceptance_text(acceptance, terminal_width())


def _report(acceptance: Acceptance) -> str:
    """Return the HTML page of this acceptance alone."""
    title = f"Acceptance {acceptance.id}"
    return report_html(
        Content(title, iso(acceptance.ended or acceptance.began), __version__, kind_of, acceptances=(acceptance,))
    )


def _keep_measurements(app: App, acceptance: Acceptance) -> None:
    try:
        with app.history() as history:
            history.add([taken.measurement for taken in acceptance.taken])
    except HistoryError as error:
        note_not_kept(error)


def _rejecting(acceptance: Acceptance) -> list[Finding]:
    """Return the findings that rejected a host."""
    rejected = [row for row in acceptance.hosts if row.verdict is NodeVerdict.REJECTED]
    return [reason.finding for row in rejected for reason in row.reasons if reason.finding.host == row.host]


def _record_rejected(app: App, acceptance: Acceptance, folder: Path) -> None:
    """Write the masked raw outputs of the rejected nodes into `folder`, ready to be sent to a vendor."""
    names = [host.host for host in acceptance.hosts if host.verdict is NodeVerdict.REJECTED][:_MOST_RECORDED]
    hosts = tuple(host for host in app.hosts if host.name in names)
    if not hosts:
        return
    place = folder / "recordings"
    shutil.rmtree(place, ignore_errors=True)
    try:
        saved = save(LiveSource(hosts, app.transport, app.forks), place, app.profile_dirs, mask=True)
    except (OSError, NodectlError) as error:
        note(f"nodectl: no recording for the vendor: {error}")
        return
    for host, reason in saved.failed.items():
        note(f"no recording for the vendor: {host}: {reason}")


def _verify(app: App, path: Path, signers: Path | None, nonce: str | None) -> None:
    """Exit status 0: signed by whom we know; 3: as written, and nobody whom we know vouches for it; 1: another."""
    beside = path.with_name(DOCUMENT)
    checked = check(path, signers, beside if beside.is_file() else None)
    head = {name: checked.said(name) for name in ("written", "nonce", "asked")}
    if nonce is not None and head["nonce"] != nonce:
        raise ChangedError(f"{path}: its nonce is {head['nonce'] or 'none'}, not the one that was given for it")
    if not checked.signer:
        vouched = "signed by nobody: who wrote it cannot be told"
    else:
        vouched = f"signed by {checked.signer}" if checked.is_known else f"signed by an unknown key, {checked.signer}"
    document = {
        "file": str(path), "intact": True, "signer": checked.signer, "known": checked.is_known,
        "document": beside.is_file(), **head,
    }  # fmt: skip
    when = f" on {head['written']}" if head["written"] else ""
    app.show("accept-verify", document, f"{path}: as it was written{when}; {vouched}")
    if not checked.is_known:
        note("whom you know, --signers FILE tells: ssh-keygen's allowed signers")
        raise SystemExit(exit_status([Status.UNKNOWN]))
