"""Which jobs there are, read from all nodes at once: the state of each, what failed first, what only followed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from nodectl.common.nodeset import fold
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
_CUT_OFF = "cut off"
_UNAWARE = "it missed the end of the job; its supervisor exits after 5 minutes without the first host"


@dataclass(frozen=True, slots=True)
class Listing:
    """The jobs, newest last, the hosts that could not be asked, and those whose jobs could not be read as a whole.

    `started` are ids of jobs that were started from here.
    """

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
        """Return the job of an id, of an id's beginning, or `last`; raise UsageError if there is none.

        A very short beginning is refused, since it would match any running job and a slip of the hand could stop it.
        """
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
    plan = next((plan for report in reports if (plan := report.document["plan"])), None) or _no_plan(reports)
    by_rank, names = _places(reports, [str(host["name"]) for host in plan["hosts"]])
    parts = tuple(_part(rank, name, by_rank.get(rank), unreachable) for rank, name in enumerate(names))
    leader = by_rank.get(0)
    if leader is not None and (leader.document["state"]["final"] or not leader.document["alive"]):
        parts = tuple(map(_without_the_first, parts))
    attempt, roster = _newest_attempt(by_rank, plan)
    newest = {rank: report for rank, report in by_rank.items() if report.attempt == attempt}
    hosts = [HostWords(names[rank], rank, report.document["state"]) for rank, report in sorted(newest.items())]
    failures = failures_of(hosts, _seen_from_elsewhere(newest, names, parts, roster), str(plan["id"]))
    first = failures[0] if failures else None
    state = _state([parts[rank] for rank in roster], first, float(plan["created_at"]))
    if state in (JobState.FINISHED, JobState.STOPPED):
        first = None
    ends = [float(report.document["state"].get("ended_at") or 0) for report in newest.values()]
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
        ended_at=max(ends, default=0.0) if state.ended else None,
        operator=str(plan["operator"]),
        attempt=attempt,
        nodes=tuple(names[rank] for rank in roster),
        restarts=int(plan.get("restarts") or 0),
        past=_past(newest, by_rank, names),
        stopped_by=next((who for report in reports if (who := report.document.get("stopped_by"))), ""),
        no_restart=next((why for report in newest.values() if (why := report.document["state"].get("no_restart"))), ""),
        skipped=tuple(map(str, plan.get("skipped") or ())),
        traces=_traces(newest, names),
    )


def _traces(newest: Mapping[int, Report], names: Sequence[str]) -> tuple[RankTrace, ...]:
    rows = [
        RankTrace(names[place], **row)
        for place, report in newest.items()
        for row in report.document.get("traces") or ()
    ]
    return tuple(sorted(rows, key=lambda row: row.rank))


def _places(reports: Sequence[Report], names: list[str]) -> tuple[dict[int, Report], list[str]]:
    """Return each report by its host's place in the plan, and the hosts' names, those outside the plan last.

    A host that another inventory calls by another name has the place that it reports itself.
    """
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
    """Return the newest attempt that a host reports: its number, and its hosts' places."""
    newest = max(by_rank.values(), key=lambda report: report.attempt)
    members = len(plan["hosts"])
    first = range(min(members, int(plan.get("nodes") or members)))
    return newest.attempt, list(newest.document["state"].get("roster") or first)


def _past(newest: Mapping[int, Report], by_rank: Mapping[int, Report], names: Sequence[str]) -> tuple[PastAttempt, ...]:
    """Return the attempts before the newest, as the first of the hosts that know most of them recorded them."""
    histories = [report.document["state"].get("attempts") or () for _, report in sorted(newest.items())]
    return tuple(
        PastAttempt(
            row["number"], tuple(row["hosts"]), row["begun_at"], row["ended_at"], _past_cause(row, by_rank, names)
        )
        for row in max(histories, key=len, default=())
    )


def _past_cause(row: Mapping[str, Any], by_rank: Mapping[int, Report], names: Sequence[str]) -> Failure | None:
    """Return an attempt's recorded cause; a host that was silent then reports its own end of that attempt."""
    if row["cause"] is None:
        return None
    agreed = failure(row["cause"]["host"], row["cause"])
    report = by_rank.get(names.index(agreed.host)) if agreed.host in names else None
    if agreed.kind != "host_lost" or report is None or report.attempt != row["number"]:
        return agreed
    own_failures = [failure(agreed.host, item) for item in report.document["state"].get("failures", ())]
    return min(
        (item for item in own_failures if item.kind not in (*FOLLOWED, "host_lost")), key=failure_place, default=agreed
    )


def _without_the_first(part: JobPart) -> JobPart:
    """Return a resting host's part as cut off, since no attempt follows without the first host."""
    return replace(part, state=_CUT_OFF, problem=_UNAWARE) if part.state == "resting" else part


def _no_plan(reports: Sequence[Report]) -> Mapping[str, Any]:
    """Return a substitute for a plan that no host could read: the hosts that know the job, and its id's time."""
    job_id = str(reports[0].document["id"])
    hosts = [{"name": name} for name in sorted(report.host for report in reports)]
    return {
        "id": job_id,
        "created_at": _id_time(job_id),
        "operator": "?",
        "script": "?",
        "args": [],
        "hosts": hosts,
        "nproc_per_node": 0,
    }


def _id_time(job_id: str) -> float:
    """Return when an id was given, which it begins with; 0 for an id of another form."""
    try:
        return datetime.strptime(job_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _part(rank: int, name: str, report: Report | None, unreachable: Mapping[str, str]) -> JobPart:
    if report is not None:
        document = report.document
        processes, alive = int(document["processes"]), bool(document["alive"])
        outputs = tuple(document["state"].get("outputs") or ())
        return JobPart(name, rank, report.state, processes, alive, str(document.get("problem", "")), outputs)
    if name in unreachable:
        return JobPart(name, rank, "unreachable", problem=unreachable[name])
    return JobPart(name, rank, "absent")


def _seen_from_elsewhere(
    by_rank: Mapping[int, Report], names: Sequence[str], parts: Sequence[JobPart], roster: Sequence[int]
) -> list[Failure]:
    """Return failures of hosts that could not speak for themselves."""
    dead = [parts[rank] for rank in roster if parts[rank].state == "lost"]
    return [
        *_heard(by_rank, names),
        *(Failure(part.host, None, "supervisor", SUPERVISOR_DIED, category="supervisor") for part in dead),
        *_lost(by_rank, names, parts),
    ]


def _heard(by_rank: Mapping[int, Report], names: Sequence[str]) -> list[Failure]:
    """Return the first failures of hosts that cannot be asked now, as another host heard them."""
    heard = {
        int(rank): item
        for report in by_rank.values()
        for rank, item in report.document["state"].get("heard", {}).items()
        if int(rank) not in by_rank and item["kind"] != "host_lost"
    }
    return [failure(names[rank], item) for rank, item in heard.items()]


def _lost(by_rank: Mapping[int, Report], names: Sequence[str], parts: Sequence[JobPart]) -> list[Failure]:
    """Return the failure of the host that most others lost; a cut-off host blames all, and all blame it."""
    votes = _votes(by_rank)
    deaf = _deaf(votes, parts)
    if deaf is not None:
        return [_nothing_arrived(deaf, votes, names)]
    most = max(map(len, votes.values()), default=0)
    blamed = [rank for rank in sorted(votes) if len(votes[rank]) == most]
    times = {rank: min(item["time"] for _, item in votes[rank]) for rank in blamed}
    unreachable = [rank for rank in blamed if parts[rank].state in ("unreachable", "lost")]
    if not unreachable and len(blamed) > 1:
        pair = " and ".join(names[rank] for rank in blamed)
        return [
            Failure(names[blamed[-1]], None, "link", f"{pair} lost each other", time=times[blamed[-1]], category="link")
        ]
    failures = []
    for rank in unreachable or blamed:
        message = f"{_reason(votes[rank][-1])}, say {most} of the other hosts"
        failures.append(Failure(names[rank], None, "host_lost", message, time=times[rank], category="host_lost"))
    return failures


# who lost a host, and in which words
_Vote = tuple[int, Mapping[str, Any]]


def _votes(by_rank: Mapping[int, Report]) -> Mapping[int, Sequence[_Vote]]:
    """Count the votes for each lost host; the vote of a host that cannot be asked is what others heard from it."""
    seen: list[_Vote] = []
    heard: dict[int, Mapping[str, Any]] = {}
    for voter, report in by_rank.items():
        state = report.document["state"]
        heard |= {int(rank): item for rank, item in state.get("heard", {}).items() if int(rank) not in by_rank}
        seen += [(voter, item) for item in state.get("failures", ())]
    votes: dict[int, list[_Vote]] = defaultdict(list)
    for voter, item in (*seen, *heard.items()):
        if item["kind"] == "host_lost":
            votes[item["lost"]].append((voter, item))
    return votes


def _deaf(votes: Mapping[int, Sequence[_Vote]], parts: Sequence[JobPart]) -> int | None:
    """Return the one host that lost others while nobody lost it or another: no packets reach it."""
    voters = {voter for items in votes.values() for voter, _ in items}
    if len(voters) != 1 or voters & set(votes):
        return None
    (voter,) = voters
    answer = [rank for rank in votes if parts[rank].state not in ("unreachable", "lost", "absent")]
    is_gone = parts[voter].state == "unreachable"
    return voter if len(answer) == len(votes) and (len(votes) > 1 or is_gone) else None


def _nothing_arrived(deaf: int, votes: Mapping[int, Sequence[_Vote]], names: Sequence[str]) -> Failure:
    items = [vote for rank in sorted(votes) for vote in votes[rank]]
    others = fold(names[rank] for rank in votes)
    message = f"{_reason(items[0])} came to it from {others}, which heard it: what is sent to it does not arrive"
    time_s = min(float(item["time"]) for _, item in items)
    return Failure(names[deaf], None, "host_lost", message, time=time_s, category="host_lost")


def _reason(vote: _Vote) -> str:
    return str(vote[1]["message"]).partition(": ")[2]


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
