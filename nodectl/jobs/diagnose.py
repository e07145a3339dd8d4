"""From what each host says of a job to one verdict: its state, what failed first, and what only followed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.model.job import Failure, Job, JobPart, JobState
from nodectl.payload.jobnode.classify import KINDS, severity

# known here alone: a dead supervisor is a closer look at a lost host, two hosts that blame each other have a bad link
_KNOWN_HERE = {"supervisor": KINDS.index("host_lost") - 0.5, "link": float(KINDS.index("host_lost"))}
_ECHOES = ("communication", "terminated")
_NEVER_STARTED_S = 60.0


def _place(failure: Failure) -> tuple[float, float]:
    kind = failure.kind
    return _KNOWN_HERE[kind] if kind in _KNOWN_HERE else severity(kind, failure.exit_status), failure.time


@dataclass(frozen=True, slots=True)
class Report:
    """What one host said of one job: a line of `jobctl list`."""

    host: str
    document: Mapping[str, Any]

    @property
    def rank(self) -> int:
        """The host's place in the plan."""
        return int(self.document["rank"])

    @property
    def state(self) -> str:
        """The host's state; `lost` where its supervisor died before its ranks had ended."""
        state = self.document["state"]
        if not state["final"] and not self.document["alive"]:
            return "lost"
        return str(state["state"])


def merge(reports: Sequence[Report], unreachable: Mapping[str, str]) -> Job:
    """One job from the reports of its hosts; `unreachable` are hosts that could not be asked, with the reason."""
    plan = reports[0].document["plan"]
    names = [str(host["name"]) for host in plan["hosts"]]
    by_rank = {report.rank: report for report in reports}
    names = [by_rank[rank].host if rank in by_rank else name for rank, name in enumerate(names)]
    parts = tuple(_part(rank, name, by_rank.get(rank), unreachable) for rank, name in enumerate(names))
    failures = sorted(_failures(by_rank, names, parts), key=_place)
    first = failures[0] if failures else None
    state = _state(parts, first, float(plan["created_at"]))
    if state in (JobState.FINISHED, JobState.STOPPED):
        first = None
    ends = [float(report.document["state"].get("ended_at") or 0) for report in reports]
    return Job(
        id=str(plan["id"]),
        state=state,
        hosts=tuple(names),
        script=str(plan["script"]),
        args=tuple(plan["args"]),
        nproc_per_node=int(plan["nproc_per_node"]),
        parts=parts,
        exit_status=_exit_status(state, first),
        first_failure=first,
        consequences=tuple(failures[1:]) if first else (),
        created_at=float(plan["created_at"]),
        ended_at=max(ends) if state.ended else None,
        operator=str(plan["operator"]),
        checkpoint="; ".join(str(r.document["state"].get("checkpoint") or "") for r in reports if r.rank == 0),
    )


def _part(rank: int, name: str, report: Report | None, unreachable: Mapping[str, str]) -> JobPart:
    if report is not None:
        return JobPart(name, rank, report.state, int(report.document["processes"]), bool(report.document["alive"]))
    if name in unreachable:
        return JobPart(name, rank, "unreachable", problem=unreachable[name])
    return JobPart(name, rank, "absent")


def _failures(by_rank: Mapping[int, Report], names: Sequence[str], parts: Sequence[JobPart]) -> list[Failure]:
    found = [
        _failure(names[rank], item)
        for rank, report in by_rank.items()
        for item in report.document["state"].get("failures", ())
        if item["kind"] != "host_lost"
    ]
    found += _heard(by_rank, names)
    dead = [part for part in parts if part.state == "lost"]
    found += [Failure(part.host, None, "supervisor", "the job's supervisor there was killed or died") for part in dead]
    return found + _lost(by_rank, names, parts)


def _heard(by_rank: Mapping[int, Report], names: Sequence[str]) -> list[Failure]:
    """The first failures of hosts that cannot be asked now, as they told the others."""
    heard = {
        int(rank): item
        for report in by_rank.values()
        for rank, item in report.document["state"].get("heard", {}).items()
        if int(rank) not in by_rank and item["kind"] != "host_lost"
    }
    return [_failure(names[rank], item) for rank, item in heard.items()]


def _failure(host: str, item: Mapping[str, Any]) -> Failure:
    return Failure(host, item["rank"], item["kind"], item["message"], item["exit_status"], float(item["time"]))


def _lost(by_rank: Mapping[int, Report], names: Sequence[str], parts: Sequence[JobPart]) -> list[Failure]:
    """The lost host is the one that most others lost; a cut-off host blames everybody, and is blamed by everybody."""
    times: dict[int, float] = {}
    votes: Counter[int] = Counter()
    messages: dict[int, str] = {}
    for report in by_rank.values():
        for item in report.document["state"].get("failures", ()):
            if item["kind"] == "host_lost":
                rank = int(item["lost"])
                votes[rank] += 1
                times[rank] = min(times.get(rank, item["time"]), item["time"])
                messages[rank] = str(item["message"]).partition(": ")[2]
    if not votes:
        return []
    most = max(votes.values())
    blamed = [rank for rank in sorted(votes) if votes[rank] == most]
    gone = [rank for rank in blamed if parts[rank].state in ("unreachable", "lost")]
    if gone or len(blamed) == 1:
        return [
            Failure(
                names[rank],
                None,
                "host_lost",
                f"{messages[rank]}, say {votes[rank]} of the other hosts",
                time=times[rank],
            )
            for rank in gone or blamed
        ]
    pair = " and ".join(names[rank] for rank in blamed)
    return [Failure(names[blamed[-1]], None, "link", f"{pair} lost each other", time=times[blamed[-1]])]


def _state(parts: Sequence[JobPart], first: Failure | None, created_at: float) -> JobState:
    states = {part.state for part in parts} - {"absent"}
    reached = states - {"unreachable"}
    ended_badly = bool(reached & {"ending", "failed", "lost"})
    stopped = bool(reached & {"stopping", "stopped"})
    if reached & {"waiting", "running", "ending", "stopping"}:
        if ended_badly or stopped:
            return JobState.ENDING
        return JobState.STARTING if "waiting" in reached else JobState.RUNNING
    if reached == {"received"}:
        return JobState.STARTING if time.time() - created_at < _NEVER_STARTED_S else JobState.STOPPED
    if stopped and (first is None or first.kind in _ECHOES):
        return JobState.STOPPED
    if ended_badly or stopped:
        unsettled = first is None or first.kind in _ECHOES
        return JobState.ENDING if unsettled and any(part.supervised for part in parts) else JobState.FAILED
    return JobState.FINISHED if states == {"finished"} else JobState.UNKNOWN


def _exit_status(state: JobState, first: Failure | None) -> int | None:
    if state is JobState.FINISHED:
        return 0
    if state is JobState.FAILED:
        return (first.exit_status if first else None) or 1
    return None
