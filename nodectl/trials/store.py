"""Trials as files, one JSON document each: replaced whole after every turn, marked as not complete until the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from nodectl.common.documents import values_of
from nodectl.common.files import read_document, replace_file
from nodectl.common.paths import state_dir
from nodectl.errors import UsageError
from nodectl.ledger.history.store import identity_of
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.model.trial import Series, Trial
from nodectl.model.verdict import Outcome, Summary
from nodectl.trials.families import judged
from nodectl.trials.series import Taken, series_of

SCHEMA = "nodectl.tune-trial/1"
_KEPT = 200
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_REMEDY = "give a file of `nodectl --output json tune trial`, or an id of `nodectl tune list`"
# said again each time: what the series say
_JUDGED = ("series", "verdicts", "summaries")


def folder() -> Path:
    """Return the folder of the trials' files, one a trial; made on first use."""
    path = state_dir() / "trials"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def document_of(trial: Trial) -> dict[str, object]:
    """Return the trial as plain data for JSON, without the schema; the verdicts stand in `trials`."""
    whole = asdict(trial)
    verdicts, summaries = whole.pop("verdicts"), whole.pop("summaries")
    head = {key: whole.pop(key) for key in ("id", "started", "ended", "complete", "reason")}
    short = [
        {
            "profile": summary["profile"],
            "verdict": summary["verdict"],
            **{key: len(summary[key]) for key in ("wins", "regressions", "undecided")},
        }
        for summary in summaries
    ]
    return {**head, "trials": verdicts, "summaries": short, **whole}


def save(trial: Trial) -> Path:
    """Write the whole document, or leave the one before it, whatever happens in between."""
    path = folder() / f"{trial.id}.json"
    text = json.dumps({"schema": SCHEMA, **document_of(trial)}, indent=1, default=str)
    replace_file(path, text + "\n", sync=True)
    return path


def prune() -> None:
    """Remove all but the latest trials' files."""
    for old in sorted(folder().glob("[0-9]*.json"))[:-_KEPT]:
        with suppress(OSError):
            old.unlink()


def trials() -> Iterator[Trial | str]:
    """Yield the kept trials, latest first, with their summaries as saved; a text for one that cannot be read."""
    for path in sorted(folder().glob("[0-9]*.json"), reverse=True):
        try:
            yield read(path, anew=False)
        except UsageError as error:
            yield error.message


def find(text: str) -> Trial:
    """Find the trial of an id, of the only one that begins so, of a file, or the latest: `last`."""
    if text == "last" and (kept := sorted(folder().glob("[0-9]*.json"))):
        return read(kept[-1])
    if _ID.fullmatch(text):
        matches = sorted(folder().glob(f"{text}*.json"))
        if len(matches) > 1 and matches[0].stem != text:
            raise UsageError(f"{len(matches)} trials begin with {text}", "give more of the id; see `nodectl tune list`")
        if matches:
            return read(matches[0])
    if not Path(text).is_file():
        if text == "last":
            raise UsageError("there is no trial yet", "`nodectl tune trial` makes one")
        raise UsageError(f"there is no trial {text}", "see `nodectl tune list`, or give a saved file")
    return read(Path(text))


def read(path: Path, *, anew: bool = True) -> Trial:
    """Read a trial from its file, judged again, or as it was summed up; UsageError if it holds none."""
    document = read_document(path, SCHEMA, _REMEDY)
    try:
        series = values_of(Series, document["series"], extra="ignore")
        row = {field.name: document[field.name] for field in fields(Trial) if field.name not in _JUDGED}
        trial = replace(values_of(Trial, [row])[0], series=series)
        if not anew:
            short = (Summary(str(summary["profile"]), Outcome(summary["verdict"])) for summary in document["summaries"])
            return replace(trial, summaries=tuple(short))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: malformed trial: {error!r}", _REMEDY) from error
    verdicts, summaries = judged(series, trial.judge_by)
    return replace(trial, verdicts=verdicts, summaries=summaries)


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
