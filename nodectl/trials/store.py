"""Trials as files: one JSON document each in the state folder, replaced whole after every turn, and read back."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.common.files import read_json, replace_file
from nodectl.common.paths import state_dir
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.trial import Ranked, Series, Side, Trial
from nodectl.model.verdict import Outcome, Summary
from nodectl.trials.crossover import judged
from nodectl.trials.series import SCHEMA as SERIES_SCHEMA
from nodectl.trials.series import read_document

SCHEMA = "nodectl.tune-trial/1"
_KEPT = 200
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_REMEDY = "give a file of `nodectl --output json tune trial`, or an id of `nodectl tune list`"


def new_id(now: datetime) -> str:
    """In the order of time, and unlike that of another trial of the same second."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def folder() -> Path:
    """The folder of the trials' files, one a trial; made on first use."""
    path = state_dir() / "trials"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def document_of(trial: Trial) -> dict[str, object]:
    """As JSON, without the schema: the verdicts stand in `trials`."""
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
    """The whole document or the one before it, whatever happens in between."""
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
    """Those that are kept, the latest first, with what was said of them then; a text where one cannot be read."""
    for path in sorted(folder().glob("[0-9]*.json"), reverse=True):
        try:
            yield read(path, anew=False)
        except UsageError as error:
            yield error.message


def find(text: str) -> Trial:
    """The trial of an id, of the only one that begins so, or of a file."""
    if _ID.fullmatch(text):
        matches = sorted(folder().glob(f"{text}*.json"))
        if len(matches) > 1 and matches[0].stem != text:
            raise UsageError(f"{len(matches)} trials begin with {text}", "give more of the id; see `nodectl tune list`")
        if matches:
            return read(matches[0])
    if not Path(text).is_file():
        raise UsageError(f"no trial {text}", "see `nodectl tune list`, or give a saved file")
    return read(Path(text))


def read(path: Path, *, anew: bool = True) -> Trial:
    """A trial from its file, judged anew from its series, or as it was summed up; UsageError where it holds none."""
    document = _document(path)
    if document.get("schema") != SCHEMA:
        raise UsageError(f"{path}: no trial in it ({SCHEMA})", _REMEDY)
    series = read_document(document, str(path))
    try:
        trial = _trial(document, series)
        return _judged(trial) if anew else replace(trial, summaries=tuple(map(_summary, document["summaries"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: malformed trial: {error!r}", _REMEDY) from error


def series_in(path: Path) -> tuple[Series, ...]:
    """The series of a file of series, or of a trial."""
    document = _document(path)
    if document.get("schema") not in (SCHEMA, SERIES_SCHEMA):
        raise UsageError(f"{path}: no series of pairs in it ({SERIES_SCHEMA} or {SCHEMA})", _REMEDY)
    return read_document(document, str(path))


def _document(path: Path) -> Mapping[str, Any]:
    document = read_json(path, _REMEDY)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: no trial in it ({SCHEMA})", _REMEDY)
    return document


def _trial(document: Mapping[str, Any], series: tuple[Series, ...]) -> Trial:
    return Trial(
        id=str(document["id"]),
        started=str(document["started"]),
        ended=str(document["ended"]),
        complete=bool(document["complete"]),
        reason=str(document["reason"]),
        nodectl=str(document["nodectl"]),
        inventory=tuple(map(str, document["inventory"])),
        limit=None if document["limit"] is None else str(document["limit"]),
        hosts={str(host): dict(own) for host, own in document["hosts"].items()},
        baseline=_side(document["baseline"]),
        candidates=tuple(map(_side, document["candidates"])),
        probes=tuple(map(str, document["probes"])),
        pairs=int(document["pairs"]),
        options=dict(document["options"]),
        series=series,
        search=tuple(Ranked(**row) for row in document["search"]),
        findings=tuple(_findings(document["findings"])),
        conditions=tuple(dict(row) for row in document["conditions"]),
    )


def _judged(trial: Trial) -> Trial:
    verdicts, summaries, crossings = judged(trial.series)
    return replace(trial, verdicts=verdicts, summaries=summaries, crossovers=crossings)


def _summary(row: Mapping[str, Any]) -> Summary:
    return Summary(str(row["profile"]), Outcome(row["verdict"]))


def _side(row: Mapping[str, Any]) -> Side:
    overrides, profile = row["overrides"], row["profile"]
    return Side(
        str(row["label"]),
        None if profile is None else str(profile),
        None if overrides is None else dict(overrides),
        {str(key): str(value) for key, value in row["run_with"].items()},
    )


def _findings(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(**{**row, "status": Status(row["status"]), "hosts": tuple(row["hosts"])})
