"""One case from the launch to `jobs clean`, and all cases one after the other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.chaos import left, verdict
from scripts.chaos.cases import Event, Phase
from scripts.chaos.hosts import ASKED, Lab, MissingError, marked
from scripts.chaos.reference import Reader, Reference, steps_in
from scripts.chaos.trial import CaseError, Slowness, TooLateError, Trial

_SETTLE_S = 15.0
_LATE_S = 10.0  # beyond what is promised, so that a late end is told with its time
_MORE_S = 3.0  # times this machine's slowness
_LATE_AGAIN = 2  # so often a moment may be missed before the case has failed


@dataclass(frozen=True, slots=True)
class Result:
    """`problems` is empty if all came as promised; `left` what stayed behind."""

    event: Event
    phase: Phase
    took_s: float
    ended_s: float | None
    slowness: float
    problems: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing was otherwise than promised."""
        return not (self.problems or self.left or self.skipped)


@dataclass(slots=True)
class Runner:
    """Brings a lab up when it needs one; `folder` keeps what failed cases showed."""

    lab: Lab
    folder: Path
    reference: dict[int, Reference]
    reader: Reader
    slowness: Slowness = field(default_factory=Slowness)
    before: dict[str, left.Snapshot] = field(default_factory=dict)

    def run(self, cases: Sequence[tuple[Event, Phase]]) -> Iterator[Result]:
        """Each case's result as it comes."""
        for event, phase in cases:
            if reason := event.missing():
                yield Result(event, phase, 0.0, None, 1.0, skipped=reason)
                continue
            yield self._case(event, phase)

    def _case(self, event: Event, phase: Phase, again: int = _LATE_AGAIN) -> Result:
        if not self.lab.whole:
            self._new_lab()
        place = self.folder / f"{event.name}-{phase}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self.slowness.begin()
        begun_s = time.monotonic()
        case = _Case(self, Trial(self.lab, event, phase, place, self.slowness))
        case.run()
        if case.is_late and again:
            self._new_lab()
            return self._case(event, phase, again - 1)
        took_s = time.monotonic() - begun_s
        result = Result(
            event, phase, took_s, case.ended_s, self.slowness.factor, tuple(case.problems), tuple(case.left)
        )
        if result.passed:
            shutil.rmtree(place)
        else:
            (place / "verdict").write_text("\n".join((*result.problems, *result.left)) + "\n")
        if event.loses_lab or case.left or case.is_stuck:
            self._new_lab()
        return result

    def _new_lab(self) -> None:
        self.lab.up()
        self.before = {host.name: left.look(self.lab, host) for host in self.lab.hosts}


@dataclass(slots=True)
class _Case:
    runner: Runner
    trial: Trial
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended_s: float | None = None
    is_stuck: bool = False
    is_late: bool = False

    def run(self) -> None:
        """Everything that is found goes to `problems` and `left`."""
        trial, expect = self.trial, self.trial.event.expects[self.trial.phase]
        status: int | None = None
        try:
            trial.begin()
            trial.reach()
            self._meet()
            status = trial.hear_out(expect.lasts_s)
        except (CaseError, OSError, MissingError) as error:
            self.problems.append(str(error))
            self.is_stuck, self.is_late = True, isinstance(error, TooLateError)
        finally:
            with suppress(OSError, CaseError):
                trial.event.undo(trial)
            trial.close()
        if "unseen" in expect.states:
            self._judge_unseen(status)
        elif trial.job_id:
            self._judge(status)

    def _meet(self) -> None:
        """Let the event happen, and wait for the promised end, or for the job's own."""
        trial, expect = self.trial, self.trial.event.expects[self.trial.phase]
        trial.event.act(trial)
        begun_s = time.monotonic()
        if expect.goes_on:
            trial.event.undo(trial)
            trial.go_on()
            return
        with suppress(CaseError):
            trial.wait(lambda: not trial.ranks(), "", (expect.within_s or 0) + _LATE_S, _MORE_S)
            self.ended_s = time.monotonic() - begun_s
        self.problems += verdict.wrong_time(expect, self.ended_s, trial.slowness.factor)
        trial.event.undo(trial)
        if trial.phase is Phase.STOPPING:
            with suppress(CaseError):  # who was hit cannot say that it has ended; the verdict is what `jobs why` tells
                trial.wait(lambda: trial.has_ended, "", _SETTLE_S, _MORE_S)
        if trial.phase is Phase.RESTARTED:
            trial.wait(lambda: bool(trial.ranks()), "no other attempt began")
            trial.go_on()

    def _judge_unseen(self, status: int | None) -> None:
        """Nobody is left to ask: the operator's programs have ended by themselves, and nothing of the lab is here."""
        trial = self.trial
        exits = trial.event.expects[trial.phase].exits or ()
        if status not in exits:
            self.problems.append(f"the launch ended with {status}, not {' or '.join(map(str, exits))}")
        self.left += [f"here: {what}" for what in left.of_lab(trial.lab)]
        self.left += [f"here: {' '.join(seen.argv)[:200]}" for seen in marked()]

    def _judge(self, status: int | None) -> None:
        trial = self.trial
        expect = trial.event.expects[trial.phase]
        job = trial.why()
        trial.keep_evidence()
        self.problems += verdict.wrong_end(expect, trial.phase, job, status)
        self._judge_results(goes_on=expect.goes_on)
        self._judge_left()

    def _judge_results(self, *, goes_on: bool) -> None:
        """Judge losses and checkpoints."""
        trial = self.trial
        losses = self.runner.reference[2 if "--spares" in trial.event.options.get(trial.phase, ()) else 3].losses
        self.problems += verdict.wrong_losses(steps_in(trial.output()), losses, goes_on=goes_on)
        unreadable = self.runner.reader.unreadable(list(trial.lab.checkpoints.glob("step-*.pt")))
        self.problems += [f"the checkpoint {Path(path).name} cannot be read: {why}" for path, why in unreadable.items()]

    def _judge_left(self) -> None:
        """Judge what lives after the job, what lies where the docs name nothing, and what `jobs clean` leaves."""
        trial, lab, before = self.trial, self.trial.lab, self.runner.before
        keeps = trial.event.expects[trial.phase].keeps
        with suppress(CaseError):
            trial.wait(lambda: not self._living(keeps), "", _SETTLE_S, _MORE_S)
        self.left += self._living(keeps)
        for host in trial.up:
            self.left += [f"{host.name}: {what}" for what in left.unnamed(before[host.name], left.look(lab, host))]
            shutil.rmtree(host.root / ASKED, ignore_errors=True)
        if self.left:
            lab.on_hosts("jobs", "stop", trial.job_id)
        done = lab.on_hosts("jobs", "clean")
        if done.returncode not in ((0,) if lab.whole else (0, 3)):
            self.problems.append(f"jobs clean ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        for host in trial.up:
            after = left.look(lab, host)
            found = [*left.living(before[host.name], after), *left.uncleaned(before[host.name], after)]
            self.left += [
                f"{host.name}, after jobs clean: {what}" for what in found if not what.startswith("process: sshd")
            ]
        shutil.rmtree(lab.checkpoints, ignore_errors=True)

    def _living(self, keeps: tuple[str, ...]) -> list[str]:
        lab, before = self.trial.lab, self.runner.before
        found = [
            f"{host.name}: {what}"
            for host in self.trial.up
            for what in left.living(before[host.name], left.look(lab, host))
            if not (keeps and what.startswith(keeps))
        ]
        return found + [f"here: {' '.join(seen.argv)[:200]}" for seen in marked()]
