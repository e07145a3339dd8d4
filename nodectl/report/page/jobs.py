"""Jobs on a line of time, each attempt a bar, and what ended those that failed.

A job is a document of `jobs`: of a saved file any of its values may be of another kind, or not there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from nodectl.common.nodeset import fold
from nodectl.model.job import JobState
from nodectl.model.status import Status
from nodectl.report.page.blocks import SYMBOLS, Block, Cell, Chart, ChartKind, Fold, Mark, Section, Table, Text
from nodectl.report.page.content import Launched

_MOST_JOBS = 40
_MOST_FAILURES = 20
_SHOWN_CONSEQUENCES = 8
_STATUSES = {
    JobState.FINISHED: Status.OK,
    JobState.FAILED: Status.FAILED,
    JobState.STOPPED: Status.WARNING,
    JobState.UNKNOWN: Status.UNKNOWN,
}


def jobs_section(launched: Sequence[Launched]) -> Section:
    """Return the latest jobs, newest first, and their failures."""
    missing = "No job was seen: `nodectl launch`; `nodectl report` asks the hosts for theirs."
    blocks = chain.from_iterable(_blocks(one) for one in launched if one.jobs)
    return Section("jobs", "Jobs", tuple(blocks), missing)


def _blocks(one: Launched) -> Iterator[Block]:
    jobs = sorted(one.jobs, key=lambda job: -(_seconds(job.get("started_at")) or 0.0))
    spans = {id(job): _spans(job) for job in jobs}
    drawn = [job for job in jobs[:_MOST_JOBS] if spans[id(job)]]
    table = _table(jobs, one)
    if drawn:
        rows = [{"name": _name(job), "spans": spans[id(job)]} for job in drawn]
        failed = sum(1 for job in jobs if _state(job) is JobState.FAILED)
        summary = f"Timeline of {len(drawn)} jobs; {failed} of {len(jobs)} failed."
        yield Chart(ChartKind.TIMELINE, "Jobs, a bar for each attempt", summary, {"rows": rows}, table, one.origin)
    else:
        yield table
    for job in [job for job in jobs if isinstance(job.get("first_failure"), dict)][:_MOST_FAILURES]:
        yield _failure(job, job["first_failure"])


def _name(job: Mapping[str, Any]) -> str:
    return f"{job.get('id') or '?'} {job.get('script') or ''}".strip()


def _state(job: Mapping[str, Any]) -> JobState:
    try:
        return JobState(str(job.get("state")))
    except ValueError:
        return JobState.UNKNOWN


def _seconds(value: object) -> float | None:
    """Seconds since 1970 between then and the year 9999, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 253_370_764_800:
        return None
    return float(value)


def _spans(job: Mapping[str, Any]) -> list[dict[str, object]]:
    """Its attempts: those that failed and were followed by another, then the newest."""
    state, status = _state(job), _status(_state(job))
    past = [one for one in _list(job.get("past_attempts")) if isinstance(one, dict)]
    spans = []
    for one in past:
        begun, ended = _seconds(one.get("started_at")), _seconds(one.get("ended_at"))
        if begun is not None and ended is not None:
            spans.append(_span(begun, ended, Status.FAILED, f"attempt {one.get('number')}: failed"))
    started, ended = _seconds(job.get("started_at")), _seconds(job.get("ended_at"))
    begun = max([float(str(span["to"])) / 1000 for span in spans], default=started)
    if begun is not None:
        word = state.value if ended is not None else f"{state.value}, not ended when it was asked"
        spans.append(_span(begun, max(begun, ended if ended is not None else begun), status, word))
    return spans


def _span(begun: float, ended: float, status: Status, word: str) -> dict[str, object]:
    return {
        "from": 1000 * begun,
        "to": 1000 * ended,
        "status": status.value,
        "symbol": SYMBOLS[status],
        "word": word,
    }


def _status(state: JobState) -> Status:
    return _STATUSES.get(state, Status.SKIPPED)


def _table(jobs: Sequence[Mapping[str, Any]], one: Launched) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for job in jobs:
        started, ended = _seconds(job.get("started_at")), _seconds(job.get("ended_at"))
        cause = job.get("first_failure")
        rows.append(
            (
                str(job.get("id") or "?"),
                Mark(_status(_state(job)), _state(job).value),
                str(job.get("operator") or ""),
                "" if started is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started)),
                "" if started is None or ended is None else f"{ended - started:,.0f} s",
                fold(map(str, _list(job.get("hosts")))),
                str(job.get("script") or ""),
                _where(cause) if isinstance(cause, dict) else "",
            )
        )
    columns = ("Job", "State", "Operator", "Started", "Took", "Hosts", "Script", "What failed first")
    return Table("Jobs, newest first", columns, rows, one.origin)


def _where(cause: Mapping[str, Any]) -> str:
    rank = "" if cause.get("rank") is None else f", rank {cause['rank']}"
    return f"{cause.get('host')}{rank}: {str(cause.get('message') or '').partition(chr(10))[0]}"


def _failure(job: Mapping[str, Any], cause: Mapping[str, Any]) -> Fold:
    told = [f"Class: {cause['class']}."] if cause.get("class") else []
    told += [f"Evidence: {line}" for line in _list(cause.get("evidence"))]
    told += [f"What to do: {cause['remedy']}"] if cause.get("remedy") else []
    followed = [_where(one) for one in _list(job.get("consequences")) if isinstance(one, dict)]
    told += [f"Then: {line}" for line in followed[:_SHOWN_CONSEQUENCES]]
    left = len(followed) - _SHOWN_CONSEQUENCES
    told += [f"Then {left} more."] if left > 0 else []
    text = str(cause.get("traceback") or "").rstrip() or str(cause.get("message") or "")
    blocks = (*map(Text, told), *([Text(text, pre=True)] if text else []))
    return Fold(Mark(Status.FAILED, "failed"), f"{_name(job)}: {_where(cause)}", blocks)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []
