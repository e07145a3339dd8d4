"""`nodectl upgrade`: Bring the fleet to another stack or driver, host by host, each proven by its own figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import click
from click.core import ParameterSource

from nodectl.cli.accept import accepted
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.evidence import keep_evidence
from nodectl.cli.jobs import read_listing, stop_job
from nodectl.cli.measuring import facts_of, hold
from nodectl.cli.options import Number, option, option_group, takes, yes_option
from nodectl.cli.progress import run_playbook, tell_messages
from nodectl.cli.rights import require_root
from nodectl.cli.rollback import plans_of
from nodectl.cli.terminal import ask, note
from nodectl.common.counting import counted
from nodectl.common.documents import new_id
from nodectl.common.nodeset import fold
from nodectl.common.process import interruptible, operator
from nodectl.common.units import time_text
from nodectl.errors import NodectlError, UnreachableError, UsageError
from nodectl.facts.catalogue import facts_named
from nodectl.ledger.accept import store
from nodectl.ledger.events import Event, lacking
from nodectl.ledger.history.compare import TOLERANCE_PERCENT, against, losses, scatter
from nodectl.ledger.store import Ledger
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of
from nodectl.profiles.load import find_profiles
from nodectl.report.measurements import comparison_table
from nodectl.report.table import aligned
from nodectl.upgrade import roll as rolls
from nodectl.upgrade.roll import ROLES, SETTLED, STILL, HostRoll, Phase, Roll, in_batches, planned

_LOOK_EVERY_S = 10.0
_REBOOTS = {"nodectl_allow_reboot": True}
# host → why it is rejected
Evidence = dict[str, tuple[str, ...]]


@option_group
class _Options:
    stack: str = option("--to", "The stack profile that the hosts get.", metavar="STACK", default="")
    driver: str = option("--driver", "The NVIDIA driver's branch that they get (580).", metavar="BRANCH", default="")
    at_once: int = option("--at-once", "Change N hosts together.", type=click.IntRange(1), default=1, metavar="N")
    canary: str = option("--canary", "Change this host first, alone.", metavar="HOST", default="")
    stop_jobs: bool = option("--stop-jobs", "Stop nodectl's jobs on a host that is due, instead of waiting for them.")
    tolerance: float = option(
        *("--tolerance", "Reject a host that lost so much of its speed."),
        default=TOLERANCE_PERCENT,
        type=Number(0, 100),
        metavar="PERCENT",
    )
    resume: bool = option("--resume", "Go on with the upgrade that was ended or stopped, by its plan.")
    dry_run: bool = option("--dry-run", "Print the plan, and change nothing.")


@click.command()
@takes(_Options)
@yes_option
@include_cordoned_option
@click.pass_obj
def upgrade(app: App, asked: _Options, yes: bool) -> None:
    """Bring the fleet to another stack or driver, host by host, each proven by its own figures of before.

    A host is cordoned, emptied, measured (`accept --level quick`), provisioned, rebooted where its driver changes,
    measured again and returned. The first that fails or lost speed is put back, and no other is changed. Without
    options: how far the last one has come.

    Exit status 1: a host was rejected.
    """
    source = click.get_current_context().get_parameter_source
    fixed = any(source(name) is ParameterSource.COMMANDLINE for name in ("stack", "driver", "at_once", "canary"))
    if asked.resume and (fixed or "limit" in app.typed):
        raise click.UsageError(
            "--resume goes by the plan of the start: no --to, --driver, --at-once, --canary, --limit"
        )
    if not (asked.resume or asked.stack or asked.driver):
        latest = rolls.latest(app.fleet)
        if latest is None:
            raise UsageError(
                "give --to STACK or --driver BRANCH", f"stacks: {', '.join(find_profiles('stack', app.profile_dirs))}"
            )
        _show(app, latest, running=rolls.is_running(app.fleet))
        return
    if asked.resume:
        app.narrow = None  # its own cordons are no reason to leave a host out
    require_root(app)
    with rolls.lock(app.fleet):
        roll, text = _begun(app) if asked.resume else _planned(app, asked)
        if asked.dry_run:
            _show(app, roll, text)
            return
        note(text)
        names = [row.host for row in roll.hosts if row.phase is not Phase.DONE]
        ask(app.hosts, f"upgrade {counted(len(names), 'host')} ({fold(names)}) to {roll.what}?", (), yes=yes)
        course = Course(app, roll, asked.stop_jobs, asked.tolerance)
        try:
            with interruptible(deaf_s=10.0):
                course.run()
        finally:
            _show(app, course.roll)
        if course.roll.ended is None:
            raise SystemExit(1)
        values = json.dumps(roll.hosts[0].variables)
        note(f"provision goes by the inventory: where it says otherwise, set {values} there before you provision again")


def _begun(app: App) -> tuple[Roll, str]:
    """Return the roll that is gone on with, those that were put back to be tried again, and how far it is."""
    roll = rolls.under_way(app.fleet)
    if roll is None:
        raise UsageError("no upgrade of this fleet is under way", "begin one: nodectl upgrade --to STACK")
    if missing := {row.host for row in roll.hosts} - set(app.inventory.names(None)):
        raise UsageError(f"the inventory no longer has {fold(missing)}, which the upgrade covers", "put it back there")
    return roll.again(), f"{roll.progress}: {roll.states}"


def _planned(app: App, asked: _Options) -> tuple[Roll, str]:
    """Return the roll and its plan; an error where a host cannot have what is asked for, or is amid another roll."""
    before, covered = rolls.under_way(app.fleet), app.inventory.names(app.limit)
    if before and (amid := [one.host for one in before.hosts if one.phase not in SETTLED and one.host in covered]):
        remedy = f"nodectl upgrade --resume; or leave {fold(amid)} out: --limit"
        raise UsageError(f"an upgrade to {before.what} is under way: {before.states}", remedy)
    facts, were = facts_of(app, facts_named("gpus")), rolls.as_rolled(before, app.hosts)
    rows = [
        planned(host, was, asked.stack, asked.driver, facts[host.name], app.profile_dirs)
        for host, was in zip(app.hosts, were, strict=True)
    ]
    with hold(app, "upgrade", force=False) as holds:
        busy = {finding.host: finding.actual for finding in holds.findings}
    what = ", ".join(filter(None, [asked.stack, f"driver {asked.driver}" * bool(asked.driver)]))
    batches = in_batches(rows, asked.at_once, asked.canary, busy)
    roll = Roll(new_id(datetime.now(UTC)), app.fleet, what, batches)
    return roll, _plan_text(roll, busy, "nodectl's jobs are stopped; other " if asked.stop_jobs else "")


def _plan_text(roll: Roll, work: Mapping[str, str], fate: str) -> str:
    total_s, usual = 0.0, {reboots: rolls.usual_s(roll.fleet, reboots=reboots) for reboots in (False, True)}
    lines = [("ORDER", "HOST", "CHANGES", "TAKES", "RESTARTS", "WORK IN THE WAY")]
    for row in roll.hosts:
        seconds = usual[row.reboots] or rolls.ESTIMATE_S + rolls.REBOOT_S * row.reboots
        total_s += seconds / sum(other.batch == row.batch for other in roll.hosts)
        takes = f"{time_text(seconds)} ({'as the last ones' if usual[row.reboots] else 'estimate'})"
        changes, restarts = "; ".join(row.changes) or "no version", "reboots" if row.reboots else "nothing"
        order = str(row.batch + 1) if row.batch else "canary"
        lines.append((order, row.host, changes, takes, restarts, work.get(row.host, "none")))
    whole = f"in all {time_text(total_s)}; {fate}work in the way is waited for"
    return f"{aligned(lines)}\n{whole}; what is rejected is put back, and ends the upgrade"


def _show(app: App, roll: Roll, plan: str = "", *, running: bool = False) -> None:
    """Show its plan, or how far each host is, with its evidence and its figures of before and now."""
    rows = [(row.host, row.phase, row.before, row.after, "; ".join(row.evidence)) for row in roll.hosts]
    way = "" if roll.ended else "; nodectl upgrade --resume goes on, and tries again what was rejected"
    lines = [
        f"{roll.progress} ({roll.id}){', now' if running else way}",
        aligned([("HOST", "STATE", "BEFORE", "AFTER", "EVIDENCE"), *rows]),
    ]
    for before, after in dict.fromkeys((row.before, row.after) for row in roll.hosts if row.before and row.after):
        lines.append(comparison_table(against(store.find(before), store.find(after)), kind_of))
    app.show("upgrade", {"upgrade": {**asdict(roll), "progress": roll.progress}}, plan or "\n".join(lines))


@dataclass
class Course:
    """A roll on its way; `tolerance` is in percent."""

    app: App
    roll: Roll
    stop_jobs: bool
    tolerance: float
    # when the hosts at hand had no work any more
    began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Return when all hosts are new, or one was rejected: no other is changed then."""
        batches = groupby(self.roll.hosts, key=lambda row: row.batch)
        if all(self._batch([row.host for row in rows]) for _, rows in batches):
            self.keep(replace(self.roll, ended=time.time()))

    def _batch(self, names: Sequence[str]) -> bool:
        """Return whether none of them is rejected."""
        if fresh := self._in(names, Phase.WAITING, Phase.DRAINING):
            self._drain(fresh)
        if changing := self._in(names, Phase.CHANGING):
            self._change(changing)
        if proved := self._in(names, Phase.PROVED):
            self.give_back(proved, "its figures are those of before")
            self._mark(proved, phase=Phase.DONE, took_s=round(time.monotonic() - self.began, 1))
        if rejected := self._in(names, Phase.REJECTED):
            self._reject(rejected)
        return not rejected

    def _drain(self, names: Sequence[str]) -> None:
        """Empty the hosts and take their figures; an end before that gives them back."""
        self._mark(names, phase=Phase.DRAINING)
        try:
            self.empty(names)
            self.began = time.monotonic()
            before, too, runs = self.known(names)
        except BaseException:
            bad = [name for name in names if self.roll.of(name).is_bad]
            self.give_back([name for name in names if name not in bad])
            self._mark(names, phase=Phase.WAITING)
            self._mark(bad, phase=Phase.BACK)
            raise
        for name in names:
            figures = {} if self.roll.of(name).before else {"before": before, "before_too": too}
            self.roll = self.roll.changed([name], back_to=runs[name], **figures)
        self._mark(names, phase=Phase.CHANGING)

    def _change(self, names: Sequence[str]) -> None:
        """Change the hosts and prove them; those with evidence against them are rejected."""
        note(f"{self.roll.progress}: changing {fold(names)}")
        evidence, after = self.provision(names), ""
        if good := [name for name in names if name not in evidence]:
            after, lost = self.prove(good)
            evidence |= lost
        for name in names:
            if lines := evidence.get(name, ()):
                note(f"{name} is rejected: {'; '.join(lines)}")
            phase = Phase.REJECTED if lines else Phase.PROVED
            self.roll = self.roll.changed([name], phase=phase, evidence=lines, after=after)
        self.keep(self.roll)

    def _reject(self, names: Sequence[str]) -> None:
        failed = self.put_back(names)
        for name, lines in failed.items():
            note(f"{name} could not be put back: {'; '.join(lines)}")
        if back := [name for name in names if name not in failed]:
            self._mark(back, phase=Phase.BACK)
            _, lost = self.prove(back)
            for name in back:
                told = f"{STILL}{'; '.join(lost[name])}" if name in lost else "put back, and good again"
                self.roll = self.roll.changed([name], evidence=(*self.roll.of(name).evidence, told))
            self.give_back([name for name in back if name not in lost], "put back, its figures are those of before")
            self.keep(self.roll)

    def _in(self, names: Sequence[str], *phases: Phase) -> list[str]:
        return [name for name in names if self.roll.of(name).phase in phases]

    def _mark(self, names: Sequence[str], **values: object) -> None:
        self.keep(self.roll.changed(names, **values))

    def keep(self, roll: Roll) -> None:
        """Write down how far it is."""
        self.roll = roll
        rolls.save(roll)

    def _of(self, names: Sequence[str]) -> App:
        """Return the App of these hosts, as they are to be by now."""
        return self.app.of(rolls.as_rolled(self.roll, [h for h in self.app.inventory.hosts(None) if h.name in names]))

    def empty(self, names: Sequence[str]) -> None:
        """Cordon the hosts, and wait until neither a job nor a process is left there."""
        with self.app.ledger() as kept:
            plan = datetime.strptime(f"{self.roll.id[:15]}+0000", "%Y%m%dT%H%M%S%z").timestamp()
            for held in (one for holds in kept.cordoned(names).values() for one in holds if one.time > plan):
                if held.reason != self.roll.reason:  # somebody may work on it
                    remedy = "nodectl ledger return, then --resume; or without it: nodectl upgrade --to STACK"
                    raise UsageError(held.text, remedy)
            for name in names:
                if not self._own(kept, name):
                    kept.cordon(name, self.roll.reason, operator())
        part, told = self._of(names), ""
        while text := self._work_on(part):
            if text != told:
                note(f"waiting: {text}")
            told = text
            time.sleep(_LOOK_EVERY_S)

    def _work_on(self, part: App) -> str:
        """Return what the hosts do, empty for nothing; an error where that cannot be told."""
        if self.stop_jobs:
            self._stop_jobs({host.name for host in part.hosts})
        with hold(part, "upgrade", force=False) as holds:
            gone, findings = holds.unreached(), holds.findings
        if gone:
            raise UnreachableError(f"{fold(gone)}: no answer", "mend that, then nodectl upgrade --resume")
        text = "; ".join(f"{finding.host} {finding.actual}" for finding in findings)
        if any(finding.status is Status.UNKNOWN for finding in findings):
            raise NodectlError(text, findings[0].remedy)
        return text

    def _stop_jobs(self, names: set[str]) -> None:
        everywhere = self.app.of(self.app.inventory.hosts(None))
        for job in read_listing(everywhere).jobs:
            if not job.state.ended and {part.host for part in job.parts} & names:
                note(f"stopping job {job.id} of {job.operator} (--stop-jobs)")
                stop_job(everywhere, everywhere.hosts, job.id)

    def known(self, names: Sequence[str]) -> tuple[str, str, Mapping[str, str]]:
        """Return the ids of two acceptances of the hosts as they are, and the last run of each, `start` for none."""
        looked = run_playbook(self._of(names), "runs", names)
        tell_messages(looked)
        if silent := set(names) - set(plans := plans_of(looked)):
            raise UnreachableError(f"{fold(silent)} did not say what it holds records of", "nodectl rollback --list")
        held = {name: [one["run"] for one in plans[name]["runs"] if one["run"] != "start"] for name in names}
        last = {name: max(runs, default="start") for name, runs in held.items()}
        return accepted(self._of(names)).id, accepted(self._of(names)).id, last

    def provision(self, names: Sequence[str]) -> Evidence:
        """Provision the stack's roles; the hosts that need it reboot."""
        problems: Evidence = {}
        for row, same in self._alike(names):
            part = self._of(same)
            keep_evidence(part, part.hosts if row.reboots else ())
            problems |= self._played(same, "site", tags=ROLES, variables={**row.variables, **_REBOOTS})
        return problems

    def prove(self, names: Sequence[str]) -> tuple[str, Evidence]:
        """Measure the hosts as they are now; lost is what two looks in a row find so, beside both looks of before."""
        pairs = dict.fromkeys((row.before, row.before_too or row.before) for row in map(self.roll.of, names))
        befores = [(store.find(first), store.find(second)) for first, second in pairs]
        lost: dict[tuple[str, str], str] = {}
        for look in (1, 2):
            after, found = accepted(self._of(names)), dict[tuple[str, str], str]()
            for pair in befores:
                noise = scatter(*pair)
                first, second = (losses(before, after, self.tolerance, noise) for before in pair)
                found |= {what: why for what, why in first.items() if what in second}
            lost = {what: why for what, why in found.items() if look == 1 or what in lost}
            if not lost:
                break
            note(f"lost, in look {look} of 2: {'; '.join(dict.fromkeys(lost.values()))}")
        return after.id, {name: tuple(why for (host, _), why in lost.items() if host == name) for name, _ in lost}

    def put_back(self, names: Sequence[str]) -> Evidence:
        """Roll back to the run before this upgrade's; a driver that was changed is put back and loaded by a reboot."""
        problems: Evidence = {}
        for row, same in self._alike(names):
            back = {"rollback_to": row.back_to, "rollback_packages": row.reboots}
            problems |= self._played(same, "rollback", variables=back)
            if row.reboots and (good := [name for name in same if name not in problems]):
                problems |= self._played(good, "site", tags=ROLES, variables=_REBOOTS)
        return problems

    def _played(self, names: Sequence[str], playbook: str, **options: Any) -> Evidence:
        """Run the playbook; return why a host is not as it wants it, for each that failed or was not reached."""
        part = self._of(names)
        with hold(part, "upgrade", force=False, changes=True, beside_work=True) as holds:
            if holds.refused:
                text = "; ".join(f"{finding.host} {finding.actual}" for finding in holds.findings)
                raise NodectlError(f"{playbook}: {text}", "when that has ended: nodectl upgrade --resume")
            run = run_playbook(part, playbook, names, **options)
        tell_messages(run)
        texts = {event.host: f"{event.task}: {' '.join(event.text.split())}" for event in run.problems}
        good = {name for name, tally in run.hosts.items() if not tally.failed and not tally.unreachable}
        return {name: (texts.get(name, f"{playbook} did not come to its end"),) for name in names if name not in good}

    def give_back(self, names: Sequence[str], proof: str = "") -> None:
        """End the cordons of the hosts; with `proof` what an acceptance refuses stays cordoned."""
        for name in names:
            with self.app.ledger() as kept:
                if proof and (missing := lacking(kept.life(name))):
                    note(f"{name} stays cordoned: {missing}")
                elif self._own(kept, name):
                    kept.return_(name, proof or "unchanged", operator())

    def _own(self, kept: Ledger, name: str) -> list[Event]:
        return [held for held in kept.cordoned([name]).get(name, ()) if held.reason == self.roll.reason]

    def _alike(self, names: Sequence[str]) -> list[tuple[HostRoll, list[str]]]:
        """Return the hosts with the same variables and the same run before together, after a row of them."""
        groups: dict[str, tuple[HostRoll, list[str]]] = {}
        for row in map(self.roll.of, names):
            key = json.dumps([row.variables, row.back_to, row.reboots], sort_keys=True)
            groups.setdefault(key, (row, []))[1].append(row.host)
        return list(groups.values())
