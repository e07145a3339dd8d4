"""Jobs that Slurm runs, as `jobs list` shows all jobs: Slurm's word for the state, ours for the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodectl.errors import NodectlError
from nodectl.jobs.cause import HostWords, failures_of
from nodectl.jobs.listing import Listing
from nodectl.jobs.remedies import remedy_of
from nodectl.jobs.rows import SlurmRow
from nodectl.jobs.slurm.login import Login
from nodectl.model.job import Failure, Job, JobPart, JobState, SlurmJob

_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"), JobState.STARTING),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "RESIZING", "SIGNALING"), JobState.RUNNING),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), JobState.ENDING),
    "COMPLETED": JobState.FINISHED,
    "CANCELLED": JobState.STOPPED,
    **dict.fromkeys(("FAILED", "BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY"), JobState.FAILED),
    **dict.fromkeys(("PREEMPTED", "TIMEOUT", "REVOKED"), JobState.FAILED),
}
# what it says, and the class of that
_BY_SLURM = {
    "TIMEOUT": ("Slurm ended it at its time limit (TIMEOUT)", "time_limit"),
    "DEADLINE": ("Slurm ended it at its deadline (DEADLINE)", "time_limit"),
    "PREEMPTED": ("Slurm ended it for another job (PREEMPTED)", "killed_from_outside"),
    "OUT_OF_MEMORY": ("Slurm ended it for its use of memory (OUT_OF_MEMORY)", "host_out_of_memory"),
    "BOOT_FAIL": ("a node did not boot (BOOT_FAIL)", "host_lost"),
}
_KILLED = 137


def with_slurm_jobs(listing: Listing, login: Login | None, job_ids: Sequence[str] = ()) -> Listing:
    """Add Slurm's jobs to the listing; a login host that cannot be asked is one of its problems."""
    if login is None:
        return listing
    name = f"{login.host.name} (Slurm)"
    try:
        rows = login.ask("list", *job_ids, kind=SlurmRow)
    except NodectlError as error:
        problems = {**listing.unreachable, name: error.message}
        return replace(listing, unreachable=problems, asked=listing.asked + 1)
    jobs = sorted((*listing.jobs, *map(read_row, rows)), key=lambda job: job.id)
    return replace(listing, jobs=tuple(jobs), asked=listing.asked + 1)


def read_row(row: Mapping[str, Any]) -> Job:
    """One job from what the login host said of it."""
    plan, hosts = row["plan"], tuple(row["hosts"]) or tuple(row["plan"]["hosts"])
    word = (row["state"].split() or ["?"])[0]  # sacct: CANCELLED by 1000
    state = _STATES.get(word, JobState.UNKNOWN)
    failures = _failures(row, hosts, word)
    first = failures[0] if failures and state is JobState.FAILED else None
    status = {JobState.FINISHED: 0, JobState.FAILED: (first.exit_status if first else None) or 1}.get(state)
    ends = [end["time"] for end in (row["ended"], *row["ends"].values()) if end]
    return Job(
        id=str(row["id"]),
        state=state,
        hosts=hosts,
        script=plan["script"],
        args=tuple(plan["args"]),
        nproc_per_node=plan["nproc_per_node"],
        parts=tuple(_part(rank, host, row, word) for rank, host in enumerate(hosts)),
        exit_status=status,
        first_failure=first,
        consequences=tuple(failures[1:]) if first else (),
        created_at=plan["created_at"],
        ended_at=max(ends) if ends and state.ended else None,
        operator=plan["operator"],
        checkpoint=str(plan["checkpoint"] or ""),
        slurm=SlurmJob(row["slurm_id"], word, row["reason"], plan["nodes"]),
    )


def _part(rank: int, host: str, row: Mapping[str, Any], word: str) -> JobPart:
    end = row["ends"].get(host)
    if end is not None:
        return JobPart(host, rank, "failed" if end["exit_status"] else "finished")
    return JobPart(host, rank, word.lower())


def _failures(row: Mapping[str, Any], hosts: Sequence[str], word: str) -> list[Failure]:
    """Return Slurm's own word first, since what it ended dies as if it had failed; then the nodes' likeliest cause."""
    hosts_told = [
        HostWords(host, rank, {"failures": end.get("failures", ()), "flight": _flight(row, rank)})
        for rank, host in enumerate(hosts)
        if (end := row["ends"].get(host))
    ]
    lost = [_lost(row, hosts)] if word == "NODE_FAIL" else []
    failures = failures_of(hosts_told, lost, row["id"])
    if word in _BY_SLURM:
        return _ended_by_slurm(word, failures)
    return failures or [_last_words(row, word)]


def _flight(row: Mapping[str, Any], node: int) -> dict[str, Any]:
    """Return what the flight recorders of this node's ranks say."""
    ranks = max(1, row["plan"]["nproc_per_node"])
    return {rank: dump for rank, dump in row["flight"].items() if int(rank) // ranks == node}


def _ended_by_slurm(word: str, failures: Sequence[Failure]) -> list[Failure]:
    """Put Slurm's word first; for a memory limit, name the rank that was killed where one is known."""
    message, category = _BY_SLURM[word]
    killed = next((item for item in failures if item.exit_status == _KILLED and item.rank is not None), None)
    if word == "OUT_OF_MEMORY" and killed is not None:
        first = replace(killed, category=category, evidence=(message, *killed.evidence))
    else:
        first, killed = Failure("slurm", None, "start", message, category=category), None
    return [replace(first, remedy=remedy_of(first)), *(item for item in failures if item is not killed)]


def _lost(row: Mapping[str, Any], hosts: Sequence[str]) -> Failure:
    silent = [host for host in hosts if not row["ends"].get(host)]
    place = silent[0] if silent else "slurm"
    return Failure(place, None, "host_lost", "Slurm lost the node (NODE_FAIL)", category="host_lost")


def _last_words(row: Mapping[str, Any], word: str) -> Failure:
    """Return the last words of the batch script as a failure, where no node tells anything; else Slurm's own word."""
    lines = str(row["batch"]).strip().splitlines()
    message = lines[-1] if lines else f"{word} {row['reason']}".strip()
    return Failure("slurm", None, "start", message, category="launcher")
