"""A job's events, for the operator's `on_event` program, which one host of the plan runs."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ..common.on_event import compose
from ..common.secret_words import without_secrets
from .folder import JobFolder
from .heartbeat import FAILED, STOPPED
from .process import spawn_payload

_MESSAGE_CHARS = 300
Row = Dict[str, Any]


def report(plan: Row, event: str, what: str, why: str = "", cause: Optional[Row] = None, **details: Any) -> int:
    """Start the plan's `on_event` program for an event and return its pid; `what` goes on with the job's name."""
    summary = f"job {plan['id']} ({os.path.basename(str(plan['script']))}) {what}" + (f": {why}" if why else "")
    host = cause["host"] if cause else None
    document = compose(event, summary, {**details, "cause": cause and _shown(cause)}, host=host, job=plan["id"])
    return spawn_payload("common.on_event", *plan["on_event"], stdin=document)


def report_end(job: JobFolder, plan: Row, state: str, cause: Optional[Row], why: str) -> int:
    """Start the program for the job's end; only a failed job has a cause."""
    cause = cause if state == FAILED else None
    by = job.stopped_by() if state == STOPPED else ""
    parts = [sentence(cause) if cause else "", why, f"by {by}" if by else ""]
    where = f" on {cause['host']}" if cause else ""
    return report(plan, "job_ended", f"{state}{where}", "; ".join(part for part in parts if part), cause, state=state)


def sentence(cause: Row) -> str:
    """Return `rank 5, CUDA out of memory, train.py line 41`, without what is not known."""
    shown = _shown(cause)
    rank = "" if shown["rank"] is None else f"rank {shown['rank']}"
    return ", ".join(part for part in (rank, shown["message"], shown["line"]) if part)


def _shown(cause: Row) -> Row:
    message = without_secrets(str(cause["message"]).partition("\n")[0])[:_MESSAGE_CHARS]
    known = {"host": cause.get("host"), "rank": cause.get("rank"), "class": cause.get("class", cause["kind"])}
    return {**known, "message": message, "line": cause.get("line") or ""}
