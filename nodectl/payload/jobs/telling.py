"""Tells people of a job: what happens to it goes into the queue of one host, the lowest of the plan that lives.

The same event has the same id on each host: where two tell of it, as in a divided fleet, a receiver can know it again.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Optional

from ..common.secret_words import without_secrets
from ..notify.queue import OVER, Queue
from .folder import JobFolder, write_atomic
from .heartbeat import FAILED, STOPPED

FOLDER = "notify"
_MESSAGE_CHARS = 300
Row = Dict[str, Any]


def queue_of(job: JobFolder) -> Queue:
    """Return the job's messages on this host."""
    return Queue(job.at(FOLDER))


class Teller:
    """Puts a job's events into its queue, and starts the senders; `plan` is the job's, of all attempts."""

    def __init__(self, job: JobFolder, plan: Row) -> None:
        self._queue = queue_of(job)
        self._job, self._plan = job, plan
        self._name = f"job {plan['id']} ({os.path.basename(str(plan['script']))})"
        self.wanted = self._queue.exists
        self.senders: Dict[int, str] = {}  # by pid: whose

    def tell(self, event: str, number: str, what: str, why: str = "", **more: Any) -> None:
        """Tell of the job; `number` tells several such events apart, `what` goes on with the job's name."""
        event_id = f"{self._plan['id']}-{event}-{number}"
        text = f"{self._name} {what}" + (f": {why}" if why else "")
        self._start(
            self._queue.put(event, event_id, f"job {self._plan['id']} {what}", text, job=self._plan["id"], **more)
        )

    def end(self, state: str, cause: Optional[Row], why: str) -> None:
        """Tell of the end: the last that is told; of a start that was undone nothing is."""
        if self._job.undone:
            return self.rest()
        is_told = state == FAILED and cause is not None
        where = f" on {cause['host']}" if is_told and cause else ""
        by = self._job.stopped_by() if state == STOPPED else ""
        parts = [sentence(cause) if is_told and cause else "", why, f"by {by}" if by else ""]
        more = {"host": cause["host"], "cause": shown(cause)} if is_told and cause else {}
        self.tell("job-end", "1", f"{state}{where}", "; ".join(part for part in parts if part), state=state, **more)
        return self.rest()

    def _start(self, names: Iterable[str]) -> None:
        for name in names:
            self.senders[self._queue.start(name)] = name

    def tend(self) -> None:
        """Start the senders anew that were killed, and hold space for messages."""
        if self.wanted:
            self._queue.reserve()
            at_work = set(self.senders.values())
            self._start(name for name in self._queue.names() if name not in at_work and self._queue.waiting(name))

    def rest(self) -> None:
        """Tell of nothing more: secrets that no message needs go now, or with the last message."""
        write_atomic(self._queue.at(OVER), b"")
        self._queue.rest()


def shown(cause: Row) -> Row:
    """Return a cause as messages have it: `host`, `rank`, `class`, `message`, `line`."""
    message = without_secrets(str(cause["message"]).partition("\n")[0])[:_MESSAGE_CHARS]
    told = {"host": cause.get("host"), "rank": cause.get("rank"), "class": cause.get("class", cause["kind"])}
    return {**told, "message": message, "line": cause.get("line") or ""}


def sentence(cause: Row) -> str:
    """Return `rank 5, CUDA out of memory, train.py line 41`, without what is not known."""
    told = shown(cause)
    rank = "" if told["rank"] is None else f"rank {told['rank']}"
    return ", ".join(part for part in (rank, told["message"], told["line"]) if part)
