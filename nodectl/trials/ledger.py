"""The record of a trial under way: after every turn the whole of it is on disk, marked as not complete until it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nodectl.ledger.history.store import identity_of
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.model.trial import Series, Trial
from nodectl.trials.course import Fresh, ranking
from nodectl.trials.crossover import judged
from nodectl.trials.series import Taken, series_of
from nodectl.trials.sides import varied_by
from nodectl.trials.store import save

_UNDER_WAY = "it was under way when this was written: nodectl was ended, or is still measuring"


@dataclass(slots=True)
class Ledger:
    """`head` is what was known before the first turn; `taken` has the turns of each candidate, by its number.

    A `search` judges the `fresh` pairs of its best alone: what made a candidate the best says nothing of it.
    """

    head: Trial
    search: bool = False
    findings: list[Finding] = field(default_factory=list)
    taken: dict[int, list[Taken]] = field(default_factory=dict)
    fresh: Fresh | None = None

    def keep(self) -> None:
        """Put what there is on disk."""
        self._save(self._trial(complete=False, reason=_UNDER_WAY))

    def close(self, reason: str) -> Trial:
        """Judge the whole of it, put it on disk and return it; complete where no reason says why it ended early."""
        trial = self._trial(complete=not reason, reason=reason)
        verdicts, summaries, crossings = judged(trial.series, trial.judge_by, together=trial.by_size)
        trial = replace(trial, verdicts=verdicts, summaries=summaries, crossovers=crossings)
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
            series=self._series(),
            search=ranking(self.head.candidates, self.taken, self.varied, self.head.judge_by) if self.search else (),
            findings=tuple(self.findings),
            conditions=self._conditions(),
        )

    @property
    def varied(self) -> frozenset[str]:
        """The conditions of measurements that the trial changes itself."""
        return varied_by((self.head.baseline, *self.head.candidates))

    def _series(self) -> tuple[Series, ...]:
        taken: Mapping[int, Sequence[Taken]] = self.taken
        if self.search:
            taken = dict([self.fresh] if self.fresh else [])
        against = self.head.baseline.label
        return tuple(
            series
            for number, turns in sorted(taken.items())
            for series in series_of(self.head.candidates[number - 1].label, against, turns, self.varied)
        )

    def _conditions(self) -> tuple[Mapping[str, object], ...]:
        """Return what each thing was first measured under, on each side."""
        first: dict[tuple[str, str], Measurement] = {}
        for number, turns in sorted(self.taken.items()):
            for taken in turns:
                side = self.head.candidates[number - 1] if taken.turn.candidate else self.head.baseline
                for measurement in taken.measurements:
                    first.setdefault((side.label, identity_of(measurement).label), measurement)
        return tuple(
            {"profile": label, "what": what, "conditions": dict(measurement.conditions)}
            for (label, what), measurement in first.items()
        )


def now() -> str:
    """Return the time now in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
