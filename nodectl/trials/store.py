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

from nodectl.common.files import replace_file
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
    """Where trials are kept."""
    path = state_dir() / "trials"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def document_of(trial: Trial) -> dict[str, object]:
    """As JSON, without the schema: the verdicts stand in `trials`."""
    whole = asdict(trial)
    verdicts, summaries = whole.pop("verdicts"), whole.pop("summaries")
    head = {key: whole.pop(key) for key in ("id", "started", "ended", "complete", "reason")}
    told = [
        {
            "profile": summary["profile"],
            "verdict": summary["verdict"],
            **{key: len(summary[key]) for key in ("wins", "regressions", "undecided")},
        }
        for summary in summaries
    ]
    return {**head, "trials": verdicts, "summaries": told, **whole}


def save(trial: Trial) -> Path:
    """The whole document or the one before it, whatever happens in between."""
    path = folder() / f"{trial.id}.json"
    text = json.dumps({"schema": SCHEMA, **document_of(trial)}, indent=1, default=str)
    replace_file(path, text + "\n", sync=True)
    return path


def prune() -> None:
    """Keep the last ones only."""
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
        found = sorted(folder().glob(f"{text}*.json"))
        if len(found) > 1 and found[0].stem != text:
            raise UsageError(f"{len(found)} trials begin with {text}", "give more of the id; see `nodectl tune list`")
        if found:
            return read(found[0])
    if not Path(text).is_file():
        raise UsageError(f"no trial {text}", "see `nodectl tune list`, or give a saved file")
    return read(Path(text))


def read(path: Path, *, anew: bool = True) -> Trial:
    """A trial from its file, judged anew from its series, or as it was summed up; UsageError where it holds none."""
    found = _document(path)
    if found.get("schema") != SCHEMA:
        raise UsageError(f"{path}: no trial in it ({SCHEMA})", _REMEDY)
    series = read_document(found, str(path))
    try:
        trial = _trial(found, series)
        return _judged(trial) if anew else replace(trial, summaries=tuple(map(_summary, found["summaries"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: malformed trial: {error!r}", _REMEDY) from error


def series_in(path: Path) -> tuple[Series, ...]:
    """The series of a file of series, or of a trial."""
    found = _document(path)
    if found.get("schema") not in (SCHEMA, SERIES_SCHEMA):
        raise UsageError(f"{path}: no series of pairs in it ({SERIES_SCHEMA} or {SCHEMA})", _REMEDY)
    return read_document(found, str(path))


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}", _REMEDY) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: no trial in it ({SCHEMA})", _REMEDY)
    return found


def _trial(found: Mapping[str, Any], series: tuple[Series, ...]) -> Trial:
    return Trial(
        id=str(found["id"]),
        started=str(found["started"]),
        ended=str(found["ended"]),
        complete=bool(found["complete"]),
        reason=str(found["reason"]),
        nodectl=str(found["nodectl"]),
        inventory=tuple(map(str, found["inventory"])),
        limit=None if found["limit"] is None else str(found["limit"]),
        hosts={str(host): dict(own) for host, own in found["hosts"].items()},
        baseline=_side(found["baseline"]),
        candidates=tuple(map(_side, found["candidates"])),
        probes=tuple(map(str, found["probes"])),
        pairs=int(found["pairs"]),
        options=dict(found["options"]),
        series=series,
        search=tuple(Ranked(**each) for each in found["search"]),
        findings=tuple(_findings(found["findings"])),
        conditions=tuple(dict(each) for each in found["conditions"]),
    )


def _judged(trial: Trial) -> Trial:
    verdicts, summaries, crossings = judged(trial.series)
    return replace(trial, verdicts=verdicts, summaries=summaries, crossovers=crossings)


def _summary(found: Mapping[str, Any]) -> Summary:
    return Summary(str(found["profile"]), Outcome(found["verdict"]))


def _side(found: Mapping[str, Any]) -> Side:
    overrides, profile = found["overrides"], found["profile"]
    return Side(
        str(found["label"]),
        None if profile is None else str(profile),
        None if overrides is None else dict(overrides),
        {str(key): str(value) for key, value in found["run_with"].items()},
    )


def _findings(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for each in found:
        yield Finding(**{**each, "status": Status(each["status"]), "hosts": tuple(each["hosts"])})
