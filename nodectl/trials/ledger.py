"""The record of a trial under way: after every turn the whole of it is on disk, marked as not complete until it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nodectl.ledger.history.store import identity_of
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.model.trial import Trial
from nodectl.trials.families import judged
from nodectl.trials.series import Taken, series_of
from nodectl.trials.store import save

_UNDER_WAY = "it was under way when this was written: nodectl was ended, or is still measuring"


@dataclass(slots=True)
class Ledger:
    """`head` is what was known before the first turn; `taken` has the turns of each candidate, by its number."""

    head: Trial
    findings: list[Finding] = field(default_factory=list)
    taken: dict[int, list[Taken]] = field(default_factory=dict)

    def keep(self) -> None:
        """Put what there is on disk."""
        self._save(self._trial(complete=False, reason=_UNDER_WAY))

    def close(self, reason: str) -> Trial:
        """Judge the whole of it, put it on disk and return it; complete if no reason says why it ended early."""
        trial = self._trial(complete=not reason, reason=reason)
        verdicts, summaries = judged(trial.series, trial.judge_by)
        trial = replace(trial, verdicts=verdicts, summaries=summaries)
        self._save(trial)
        return replace(trial, findings=tuple(self.findings))

    def _save(self, trial: Trial) -> None:
        """Save it; a full disk costs the record, not the trial."""
        try:
            save(trial)
        except OSError as error:
            warning = Finding("", "tune trial", Status.WARNING, "record", actual=f"not kept: {error}")
            if warning not in self.findings:
                self.findings.append(warning)

    def _trial(self, *, complete: bool, reason: str) -> Trial:
        return replace(
            self.head,
            ended=now(),
            complete=complete,
            reason=reason,
            series=tuple(
                series
                for number, turns in sorted(self.taken.items())
                for series in series_of(self.head.candidates[number - 1], self.head.baseline, turns)
            ),
            findings=tuple(self.findings),
            conditions=self._conditions(),
        )

    def _conditions(self) -> tuple[Mapping[str, object], ...]:
        """Return what each thing was first measured under, on each side."""
        first: dict[tuple[str, str], Measurement] = {}
        for number, turns in sorted(self.taken.items()):
            for taken in turns:
                profile = self.head.candidates[number - 1] if taken.turn.candidate else self.head.baseline
                for measurement in taken.measurements:
                    first.setdefault((profile, identity_of(measurement).label), measurement)
        return tuple(
            {"profile": profile, "what": what, "conditions": dict(measurement.conditions)}
            for (profile, what), measurement in first.items()
        )


def now() -> str:
    """Return the time now in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
