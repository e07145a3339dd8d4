"""Which jobs there are, read from all nodes at once: the state of each, what failed first, what only followed."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.common.files import replace_file
from nodectl.common.nodeset import fold
from nodectl.common.paths import cache_dir
from nodectl.errors import UnreachableError, UsageError
from nodectl.jobs.cause import HostWords, failure, failure_place, failures_of
from nodectl.jobs.nodes import ask
from nodectl.jobs.rows import JobRow
from nodectl.model.host import Host
from nodectl.model.job import Failure, Job, JobPart, JobState, PastAttempt, RankTrace
from nodectl.payload.jobs.failures import FOLLOWED, SUPERVISOR_DIED
from nodectl.transport.base import Transport

_TIMEOUT_S = 20.0
_NEVER_STARTED_S = 60.0
# the day of a job's id: what is shorter fits all jobs alike
_SHORTEST = 8
_MOST_STARTED = 50
_CUT_OFF = "cut off"
_UNAWARE = "it missed the end of the job; its supervisor exits after 5 minutes without the first host"


@dataclass(frozen=True, slots=True)
class Listing:
    """Jobs, newest last; hosts that could not be asked or read; `started`: ids of jobs that were started here."""

    jobs: tuple[Job, ...]
    unreachable: Mapping[str, str]
    asked: int
    problems: Mapping[str, str] = field(default_factory=dict)
    started: frozenset[str] = frozenset()

    @property
    def last(self) -> Job | None:
        """The newest job that was started from here, else the newest of all."""
        jobs = [job for job in self.jobs if job.id in self.started] or self.jobs
        return jobs[-1] if jobs else None

    def find(self, wanted: str) -> Job:
        """Return the job of an id, of an id's beginning, or `last`; raise UsageError if there is none, or several."""
        exact = [job for job in self.jobs if job.id == wanted]
        matches = exact or [job for job in self.jobs if job.id.startswith(wanted)]
        if wanted == "last":
            matches = [] if self.last is None else [self.last]
        elif not exact and len(wanted) < _SHORTEST:
            raise UsageError(
                f"{wanted!r} is too short for the beginning of a job's id: {_SHORTEST} characters at least",
                "`nodectl jobs list` shows the ids; `last` is the newest that was started from here",
            )
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(
                f"{wanted!r} fits {len(matches)} jobs: {', '.join(job.id for job in matches)}",
                "write more of its id",
            )
        if self.unreachable and len(self.unreachable) == self.asked:
            raise UnreachableError("no host could be asked for its jobs: " + next(iter(self.unreachable.values())))
        unseen = f" on the hosts that answered ({len(self.unreachable)} did not)" if self.unreachable else ""
        if wanted == "last":
            raise UsageError(f"there is no job yet{unseen}", "`nodectl launch SCRIPT` starts one")
        raise UsageError(f"there is no job {wanted!r}{unseen}", "`nodectl jobs list` shows those that there are")


def read_jobs(
    transport: Transport,
    hosts: Sequence[Host],
    forks: int,
    job_ids: Sequence[str] = (),
    gone: Mapping[str, str] | None = None,
) -> Listing:
    """Ask every host for its jobs (only for `job_ids`, if given), and leave out those in `gone`."""
    unreachable = dict(gone or {})
    there = [host for host in hosts if host.name not in unreachable]
    answers = ask(transport, there, lambda _: ["list", *job_ids], forks=forks, timeout_s=_TIMEOUT_S, kind=JobRow)
    problems = {**unreachable, **answers.problems}
    reports: dict[str, list[Report]] = defaultdict(list)
    unread: dict[str, list[str]] = defaultdict(list)
    for host, rows in answers.lines.items():
        for row in rows:
            reports[row["id"]].append(Report(host, row))
            if row["problem"]:
                unread[host].append(row["problem"])
    jobs = tuple(merge(reports[job_id], problems) for job_id in sorted(reports))
    return Listing(jobs, problems, len(hosts), {host: "; ".join(reasons) for host, reasons in unread.items()})


@dataclass(frozen=True, slots=True)
class Report:
    """One host's report of one job: a row of `jobs.control list`, without a plan if it could not be read."""

    host: str
    document: Mapping[str, Any]

    @property
    def state(self) -> str:
        """The host's state; `lost` where its supervisor died before its ranks had ended."""
        state = self.document["state"]
        if not state["final"] and not self.document["alive"]:
            return "lost"
        return str(state["state"])

    @property
    def attempt(self) -> int:
        """The newest attempt that this host knows of."""
        return int(self.document["state"].get("attempt", 1))


def merge(reports: Sequence[Report], unreachable: Mapping[str, str]) -> Job:
    """Return one job from its hosts' reports; `unreachable` are hosts that could not be asked, with the reason."""
    plan = next((plan for report in reports if (plan := report.document["plan"])), None) or _substitute_plan(reports)
    by_rank, names = _places(reports, [host["name"] for host in plan["hosts"]])
    parts = _parts(by_rank, names, unreachable)
    attempt, roster = _newest_attempt(by_rank, plan)
    newest = {rank: report for rank, report in by_rank.items() if report.attempt == attempt}
    hosts = [HostWords(names[rank], rank, report.document["state"]) for rank, report in sorted(newest.items())]
    failures = failures_of(hosts, _seen_from_elsewhere(newest, names, parts, roster), plan["id"])
    first = failures[0] if failures else None
    state = _state([parts[rank] for rank in roster], first, plan["created_at"])
    if state in (JobState.FINISHED, JobState.STOPPED):
        first = None
    ends = [float(report.document["state"].get("ended_at") or 0) for report in newest.values()]
    return Job(
        id=plan["id"],
        state=state,
        hosts=tuple(names),
        script=plan["script"],
        args=tuple(plan["args"]),
        nproc_per_node=plan["nproc_per_node"],
        parts=tuple(parts),
        exit_status=_exit_status(state, first),
        first_failure=first,
        consequences=tuple(failures[1:]) if first else (),
        created_at=plan["created_at"],
        ended_at=max(ends, default=0.0) if state.ended else None,
        operator=plan["operator"],
        attempt=attempt,
        nodes=tuple(names[rank] for rank in roster),
        restarts=plan.get("restarts") or 0,
        past=_past(newest, by_rank, names),
        stopped_by=next((who for report in reports if (who := report.document.get("stopped_by"))), ""),
        no_restart=next((why for report in newest.values() if (why := report.document["state"].get("no_restart"))), ""),
        skipped=tuple(plan.get("skipped") or ()),
        traces=tuple(
            RankTrace(names[place], **row)
            for place, report in sorted(newest.items())
            for row in report.document.get("traces") or ()
        ),
    )


def _places(reports: Sequence[Report], names: list[str]) -> tuple[dict[int, Report], list[str]]:
    """Return reports by place in the plan (a host of unknown name reports its own), and the hosts' names."""
    named = {names.index(report.host): report for report in reports if report.host in names}
    by_rank = dict(named)
    for report in reports:
        if report in named.values():
            continue
        rank = report.document["rank"]
        if rank is None or rank >= len(names) or rank in by_rank:
            rank = len(names)
        names = [*names[:rank], report.host, *names[rank + 1 :]]
        by_rank[rank] = report
    return by_rank, names


def _newest_attempt(by_rank: Mapping[int, Report], plan: Mapping[str, Any]) -> tuple[int, list[int]]:
    newest = max(by_rank.values(), key=lambda report: report.attempt)
    members = len(plan["hosts"])
    first = range(min(members, int(plan.get("nodes") or members)))
    return newest.attempt, list(newest.document["state"].get("roster") or first)


def _past(newest: Mapping[int, Report], by_rank: Mapping[int, Report], names: Sequence[str]) -> tuple[PastAttempt, ...]:
    histories = [report.document["state"].get("attempts") or () for _, report in sorted(newest.items())]
    return tuple(
        PastAttempt(
            row["number"], tuple(row["hosts"]), row["begun_at"], row["ended_at"], _past_cause(row, by_rank, names)
        )
        for row in max(histories, key=len, default=())
    )


def _past_cause(row: Mapping[str, Any], by_rank: Mapping[int, Report], names: Sequence[str]) -> Failure | None:
    if row["cause"] is None:
        return None
    # a host that was silent then reports its own end of that attempt
    agreed = failure(row["cause"]["host"], row["cause"])
    report = by_rank.get(names.index(agreed.host)) if agreed.host in names else None
    if agreed.kind != "host_lost" or report is None or report.attempt != row["number"]:
        return agreed
    own_failures = [failure(agreed.host, item) for item in report.document["state"].get("failures", ())]
    return min(
        (item for item in own_failures if item.kind not in (*FOLLOWED, "host_lost")), key=failure_place, default=agreed
    )


def _substitute_plan(reports: Sequence[Report]) -> Mapping[str, Any]:
    job_id = str(reports[0].document["id"])
    hosts = [{"name": name} for name in sorted(report.host for report in reports)]
    created_at = 0.0
    with suppress(ValueError):  # an id begins with its time
        created_at = datetime.strptime(job_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    return {
        "id": job_id,
        "created_at": created_at,
        "operator": "?",
        "script": "?",
        "args": [],
        "hosts": hosts,
        "nproc_per_node": 0,
    }


def _parts(by_rank: Mapping[int, Report], names: Sequence[str], unreachable: Mapping[str, str]) -> list[JobPart]:
    first = by_rank.get(0)
    # no attempt follows without the first host
    is_over = first is not None and (first.document["state"]["final"] or not first.document["alive"])
    parts = []
    for rank, name in enumerate(names):
        report = by_rank.get(rank)
        if report is None:
            state = "unreachable" if name in unreachable else "absent"
            parts.append(JobPart(name, rank, state, problem=unreachable.get(name, "")))
            continue
        row, state, problem = report.document, report.state, report.document.get("problem", "")
        if is_over and state == "resting":
            state, problem = _CUT_OFF, _UNAWARE
        outputs = tuple(row["state"].get("outputs") or ())
        parts.append(JobPart(name, rank, state, row["processes"], row["alive"], problem, outputs))
    return parts


def _seen_from_elsewhere(
    by_rank: Mapping[int, Report], names: Sequence[str], parts: Sequence[JobPart], roster: Sequence[int]
) -> list[Failure]:
    """Return failures of hosts that could not report them; `heard` is what other hosts last heard from those."""
    heard = {
        int(rank): item
        for report in by_rank.values()
        for rank, item in report.document["state"].get("heard", {}).items()
        if int(rank) not in by_rank
    }
    own = [(rank, item) for rank, report in by_rank.items() for item in report.document["state"].get("failures", ())]
    losses = [(rank, item) for rank, item in (*own, *heard.items()) if item["kind"] == "host_lost"]
    dead = [parts[rank] for rank in roster if parts[rank].state == "lost"]
    return [
        *(failure(names[rank], item) for rank, item in heard.items() if item["kind"] != "host_lost"),
        *(Failure(part.host, None, "supervisor", SUPERVISOR_DIED, category="supervisor") for part in dead),
        *_lost(losses, names, parts),
    ]


def _lost(
    losses: Sequence[tuple[int, Mapping[str, Any]]], names: Sequence[str], parts: Sequence[JobPart]
) -> list[Failure]:
    """Return the failure of the host with the most lost connections: it lost other hosts, or they lost it."""
    if not losses:
        return []
    lost = {(rank, item["lost"]) for rank, item in losses}
    broken = Counter(rank for pair in {frozenset(pair) for pair in lost} for rank in pair)
    blamed = sorted(rank for rank in broken if broken[rank] == max(broken.values()))
    gone = [rank for rank in blamed if parts[rank].state in ("unreachable", "lost")]
    time_s = min(float(item["time"]) for _, item in losses)
    mutual = sorted({rank for rank, other in lost if (other, rank) in lost and {rank, other} <= set(blamed)})
    if mutual and not gone:
        pair = " and ".join(names[rank] for rank in mutual)
        return [Failure(names[mutual[-1]], None, "link", f"{pair} lost each other", time=time_s, category="link")]
    reason = str(losses[0][1]["message"]).partition(": ")[2]
    failures = []
    for rank in gone or [rank for rank in blamed if len(blamed) == 1 or any(other == rank for _, other in lost)]:
        by = sum(other == rank for _, other in lost)
        others = fold(names[other] for host, other in lost if host == rank)
        message = f"{reason}, say {by} of the other hosts"
        if not by:
            message = f"{reason} came to it from {others}, which heard it: what is sent to it does not arrive"
        failures.append(Failure(names[rank], None, "host_lost", message, time=time_s, category="host_lost"))
    return failures


def _state(parts: Sequence[JobPart], first: Failure | None, created_at: float) -> JobState:
    parts = [part for part in parts if part.state != _CUT_OFF]
    states = {part.state for part in parts} - {"absent"}
    reached = states - {"unreachable"}
    if "resting" in reached:
        return JobState.RESTARTING
    ended_badly = bool(reached & {"ending", "failed", "lost"})
    stopped = bool(reached & {"stopping", "stopped"})
    if reached & {"waiting", "running", "ending", "stopping"}:
        if ended_badly or stopped:
            return JobState.ENDING
        return JobState.STARTING if "waiting" in reached else JobState.RUNNING
    if reached and reached <= {"received", "partial"}:
        return JobState.STARTING if time.time() - created_at < _NEVER_STARTED_S else JobState.STOPPED
    if stopped and (first is None or first.kind in FOLLOWED):
        return JobState.STOPPED
    if ended_badly or stopped:
        unsettled = first is None or first.kind in FOLLOWED
        return JobState.ENDING if unsettled and any(part.supervised for part in parts) else JobState.FAILED
    return JobState.FINISHED if states == {"finished"} else JobState.UNKNOWN


def _exit_status(state: JobState, first: Failure | None) -> int | None:
    if state is JobState.FINISHED:
        return 0
    if state is JobState.FAILED:
        return (first.exit_status if first else None) or 1
    return None


def note_started(fleet: str, job_id: str) -> None:
    """Keep the id, the newest first; if that cannot be, nothing is kept."""
    place = _started_file(fleet)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(place, json.dumps(sorted({*started_jobs(fleet), job_id}, reverse=True)[:_MOST_STARTED]))


def started_jobs(fleet: str) -> list[str]:
    """Return the ids of jobs that `launch` started from here, the newest first."""
    with suppress(OSError, ValueError):
        return [str(name) for name in json.loads(_started_file(fleet).read_bytes())]
    return []


def _started_file(fleet: str) -> Path:
    return cache_dir() / "jobs-started" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:32]}.json"
