"""A trial from its first turn to its record: warmed up, armed, measured in turns, put back, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.trial import Trial
from nodectl.probes.base import Note
from nodectl.trials.felt import Setting, named, unfelt
from nodectl.trials.measuring import Measuring, refuse_too_short
from nodectl.trials.store import Ledger, now
from nodectl.trials.turns import Course, TrialEndError, Turns
from nodectl.trials.verdict import JOULE, decides

if TYPE_CHECKING:
    from nodectl.trials.arming import Armed


class TrialInterrupt(KeyboardInterrupt):
    """Ctrl-C after the former values were put back, with the trial as it is kept."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial = trial


@dataclass(slots=True)
class TrialRun:
    """One trial; `head` says what is tried, where and how; `settings` is what the candidates change.

    Inside the block of `arm` the hosts put their former values back by themselves once nobody asks for them any more.
    """

    head: Trial
    measuring: Measuring
    arm: Callable[[], AbstractContextManager[Armed]]
    note: Note
    clock: Callable[[], float]
    ends_at: float | None = None
    settings: Sequence[Setting] = ()
    _ledger: Ledger = field(init=False)
    _turn_s: float = 0.0
    _arming_s: float = 0.0

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.head)

    def run(self) -> Trial:
        """Run the trial and return it as it is kept; its findings say what could not be done."""
        self._warm_up()
        if lost := self.measuring.lost():
            reasons = "; ".join(f"{host}: {reason}" for host, reason in sorted(lost.items()))
            return self._ledger.close(f"lost before anything was changed: {reasons}")
        if not self.measuring.names:
            return self._ledger.close("nothing could be measured here, and no setting was changed")
        if (left_s := self._left_s()) is not None:
            refuse_too_short(left_s, self._turn_s, len(self.head.candidates))
        try:
            reason = self._armed_turns()
        except KeyboardInterrupt as error:
            raise TrialInterrupt(self._ledger.close("broken off: interrupted")) from error
        except BaseException as error:
            self._ledger.close(f"broken off: {str(error) or type(error).__name__}")
            raise
        return self._ledger.close(reason)

    def _warm_up(self) -> None:
        """Measure once with what is on the hosts, so that nothing is changed where something cannot be measured."""
        started = self.clock()
        warm = self.measuring.warm_up()
        self._turn_s = self.clock() - started
        self._ledger.findings += self.measuring.dropped
        self._ledger.head = replace(self.head, probes=self.measuring.names, started=now())
        deciding = {row.unit for row in warm.measurements if decides(row.unit, self.head.judge_by)}
        if warm.measurements and not deciding:
            raise UsageError(
                f"nothing that is measured here tells {self.head.judge_by}",
                "measure a training on GPUs of Volta or newer, with torch 2.3 or newer, which tell their energy"
                if self.head.judge_by == JOULE
                else "give --probes that measure a rate or a time",
            )
        backends = {measurement.conditions.get("backend") for measurement in warm.measurements}
        unmeasured = unfelt(self.settings, self.measuring.names, backends)
        if unmeasured and self.measuring.names:
            probes = ", ".join(self.measuring.names)
            self.note(f"the proposal leaves these out, since {probes} does not use them: {named(unmeasured)}")
        turns = 2 * self.head.pairs * len(self.head.candidates)
        all_turns = f"{turns} of them {time_text(turns * self._turn_s)}"
        self.note(f"a turn takes {time_text(self._turn_s)}: {all_turns}, and the settings are put on between")

    def _armed_turns(self) -> str:
        started = self.clock()
        armed = None
        try:
            with self.arm() as armed:
                self._arming_s = self.clock() - started
                missing = {host.name for host in self.measuring.hosts} - {host.name for host in armed.hosts}
                if missing:
                    return f"not armed, and nothing was changed: {', '.join(sorted(missing))}"
                return self._turns(armed)
        finally:
            # also of what could not be put back, however it ended
            self._ledger.findings += armed.findings if armed else ()

    def _turns(self, armed: Armed) -> str:
        turns = Turns(
            put_on=armed.put_on,
            lost=lambda: {**armed.lost(), **self.measuring.lost()},
            measure=self.measuring,
            note=self.note,
            clock=self.clock,
        )
        head, ledger = self.head, self._ledger
        course = Course(turns, head.baseline, head.candidates, ledger.keep, ledger.taken)
        try:
            ending = course.interleave(head.pairs, self._has_time)
        except TrialEndError as end:
            return str(end)
        finally:
            ledger.findings += turns.collected.findings()
        if ending.trimmed:
            trimmed = f"to fit the budget: {ending.trimmed}"
            ledger.findings.append(Finding("", "tune trial", Status.WARNING, "budget", actual=trimmed))
        return ending.reason

    def _has_time(self, seconds: float) -> bool:
        left_s = self._left_s()
        return left_s is None or left_s >= seconds

    def _left_s(self) -> float | None:
        """Seconds left of the budget, less what putting the former values back will take; None without a budget."""
        return None if self.ends_at is None else self.ends_at - self.clock() - 2 * self._arming_s


def failed(trial: Trial) -> int:
    """Return the exit status: 1 where something failed, 3 where it ended early or anything is undecided, else 0."""
    statuses = {finding.status for finding in trial.findings}
    if Status.FAILED in statuses:
        return 1
    undecided = any(summary.undecided for summary in trial.summaries)
    return 3 if not trial.complete or undecided or Status.UNKNOWN in statuses else 0
