"""A job's events, for the operator's `on_event` program, which one host of the plan runs."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ..common.on_event import compose
from ..common.secret_words import without_secrets
from .attempts import Member
from .heartbeat import STOPPED
from .process import spawn_payload

_MESSAGE_CHARS = 300
Row = Dict[str, Any]


def report(member: Member, event: str, what: str, why: str = "", cause: Optional[Row] = None, **details: Any) -> None:
    """Start the plan's `on_event` program for an event, unless the start was undone; it is no process of the job."""
    plan, host = member.plan, str(cause["host"]) if cause else None
    if member.job.undone:
        return
    by = member.job.stopped_by() if details.get("state") == STOPPED else ""
    parts = [why, by and f"by {by}"]
    if cause:
        message = without_secrets(str(cause["message"]).partition("\n")[0])[:_MESSAGE_CHARS]
        rank, line = cause.get("rank"), cause.get("line") or ""
        kind = cause.get("class", cause["kind"])
        details["cause"] = {"host": host, "rank": rank, "class": kind, "message": message, "line": line}
        parts = [str(host), "" if rank is None else f"rank {rank}", message, line, *parts]
    summary = ": ".join(filter(None, (what, ", ".join(filter(None, parts)))))
    name = f"job {plan['id']} ({os.path.basename(str(plan['script']))})"
    document = compose(event, f"{name} {summary}", {"cause": None, **details}, host=host, job=plan["id"])
    member.containment.spared.add(spawn_payload("common.on_event", *plan["on_event"], stdin=document))
