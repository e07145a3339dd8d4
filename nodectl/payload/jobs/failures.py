"""Failures as hosts record and exchange them: causes before echoes, and shortened to fit a heartbeat or the state."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Tuple

# a cause comes before its echoes: a killed rank makes its peers fail with communication errors within milliseconds
KINDS = (
    *("time_limit", "signal", "exception", "exit", "start"),
    *("rebooted", "supervisor", "left", "host_lost", "launcher", "communication", "terminated"),
)
_CAUSES = ("signal", "exception", "exit", "start")
# a process is seen to end after its connections are closed; what its peers say of that may be known first
_HEAD_START_S = 0.5

# kinds of failures that follow from another rank's end
FOLLOWED = ("communication", "terminated")

# the message for a host whose supervisor and guard both died without a record
SUPERVISOR_DIED = "the job's supervisor there was killed or died"

Failure = Dict[str, Any]


def row(kind: str, message: str, time: float, **more: object) -> Failure:
    """Return a failure's document; rank None and class = kind, unless `more` sets them."""
    document: Failure = {"kind": kind, "class": kind, "message": message, "rank": None, "exit_status": None}
    return {**document, "time": time, **more}


def severity(kind: str, exit_status: Optional[int]) -> float:
    """Return a failure's rank among its job's, lowest for the likeliest cause; all causes are equal, and time decides.

    SIGTERM is hardly a cause: a launcher sends it to the other ranks, perhaps before the failed rank was seen. A
    launcher that was ended by a signal is a cause.
    """
    if kind == "signal" and exit_status == 128 + signal.SIGTERM:
        return KINDS.index("launcher") + 0.5
    if kind in _CAUSES or (kind == "launcher" and exit_status is not None and exit_status > 128):
        return float(KINDS.index("signal"))
    return float(KINDS.index(kind))


def happened_s(kind: str, exit_status: Optional[int], time_s: float) -> float:
    """Return when a failure happened, to order causes; deaths by signal count earlier, but SIGABRT is seen late."""
    is_early = kind == "signal" and exit_status not in (None, 128 + signal.SIGABRT)
    return time_s - _HEAD_START_S if is_early else time_s


def first(failures: Iterable[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the likeliest cause: by kind, then by time; None if there is none."""

    def place(item: Dict[str, Any]) -> Tuple[float, float]:
        kind, status = item["kind"], item.get("exit_status")
        return severity(kind, status), happened_s(kind, status, item["time"])

    return min(failures, key=place, default=None)


def first_of_attempt(failures: Iterable[Dict[str, Any]], *, host_lost: bool = False) -> Optional[Dict[str, Any]]:
    """Return the likeliest cause; a rank that left early counts as one only if all other failures are consequences."""
    candidates = list(failures)
    if host_lost or any(failure["kind"] not in (*FOLLOWED, "left") for failure in candidates):
        candidates = [failure for failure in candidates if failure["kind"] != "left"]
    # a host that was cut off reports all others as lost: the lost host is the one that most hosts report
    votes = Counter(failure.get("lost") for failure in candidates if failure["kind"] == "host_lost")
    most = max(votes.values(), default=0)
    return first(item for item in candidates if item["kind"] != "host_lost" or votes[item.get("lost")] == most)


_TOLD_CHARS, _TOLD_LINES, _TOLD_LINE_CHARS = 1500, 4, 250
_WHOLE, _LIST_CHARS = 4, 600


def brief(failure: Dict[str, Any]) -> Dict[str, Any]:
    """Return the failure shortened to fit into a heartbeat."""
    kept = {name: value for name, value in failure.items() if name not in ("traceback", "flight")}
    lines = [line[:_TOLD_LINE_CHARS] for line in failure.get("evidence", ())[:_TOLD_LINES]]
    return {**kept, "message": str(failure["message"])[:_TOLD_CHARS], "evidence": lines}


def bounded(failures: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the failures for the state file, which must stay small: the likeliest causes whole, others shortened."""
    if len(failures) <= _WHOLE:
        return list(failures)
    ranked = sorted(failures, key=lambda item: (severity(item["kind"], item.get("exit_status")), item["time"]))
    whole = {id(item) for item in ranked[:_WHOLE]}
    return [
        item if id(item) in whole else {**brief(item), "message": str(item["message"])[:_LIST_CHARS]}
        for item in failures
    ]
