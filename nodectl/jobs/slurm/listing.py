"""Jobs that Slurm runs, as `jobs list` shows all jobs: Slurm's word for the state, ours for the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodectl.errors import NodectlError
from nodectl.jobs.cause import failure_place
from nodectl.jobs.listing import Listing
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
_BY_SLURM = {
    "TIMEOUT": "Slurm ended it at its time limit (TIMEOUT)",
    "DEADLINE": "Slurm ended it at its deadline (DEADLINE)",
    "PREEMPTED": "Slurm ended it for another job (PREEMPTED)",
    "OUT_OF_MEMORY": "Slurm ended it for its use of memory (OUT_OF_MEMORY)",
    "BOOT_FAIL": "a node did not boot (BOOT_FAIL)",
}


def with_slurm_jobs(listing: Listing, login: Login | None, job_ids: Sequence[str] = ()) -> Listing:
    """The listing with Slurm's jobs among its own; a login host that cannot be asked is one of its problems."""
    if login is None:
        return listing
    name = f"{login.host.name} (Slurm)"
    try:
        rows = login.ask("list", *job_ids)
    except NodectlError as error:
        problems = {**listing.unreachable, name: error.message}
        return Listing(listing.jobs, problems, listing.asked + 1, listing.problems)
    jobs = sorted((*listing.jobs, *map(read_row, rows)), key=lambda job: job.id)
    return Listing(tuple(jobs), listing.unreachable, listing.asked + 1, listing.problems)


def read_row(row: Mapping[str, Any]) -> Job:
    """One job from what the login host said of it."""
    plan, hosts = row["plan"], tuple(row["hosts"]) or tuple(row["plan"]["hosts"])
    word = str(row["state"]).split()[0]  # sacct: CANCELLED by 1000
    state = _STATES.get(word, JobState.UNKNOWN)
    failures = sorted(_failures(row, hosts, int(plan["nproc_per_node"]), word), key=_place)
    first = failures[0] if failures and state is JobState.FAILED else None
    status = {JobState.FINISHED: 0, JobState.FAILED: (first.exit_status if first else None) or 1}.get(state)
    ends = [end["time"] for end in (row["ended"], *row["ends"].values()) if end]
    return Job(
        id=str(row["id"]),
        state=state,
        hosts=hosts,
        script=str(plan["script"]),
        args=tuple(plan["args"]),
        nproc_per_node=int(plan["nproc_per_node"]),
        parts=tuple(_part(rank, host, row, word) for rank, host in enumerate(hosts)),
        exit_status=status,
        first_failure=first,
        consequences=tuple(failures[1:]) if first else (),
        created_at=float(plan["created_at"]),
        ended_at=max(ends) if ends and state.ended else None,
        operator=str(plan["operator"]),
        checkpoint=str(plan["checkpoint"]),
        slurm=SlurmJob(int(row["slurm_id"]), word, str(row["reason"]), int(plan["nodes"])),
    )


def _place(failure: Failure) -> tuple[bool, tuple[float, float]]:
    """Slurm's own word first: what it ended dies as if it had failed."""
    return failure.host != "slurm", failure_place(failure)


def _part(rank: int, host: str, row: Mapping[str, Any], word: str) -> JobPart:
    end = row["ends"].get(host)
    if end is not None:
        return JobPart(host, rank, "failed" if end["exit_status"] else "finished")
    return JobPart(host, rank, word.lower())


def _failures(row: Mapping[str, Any], hosts: Sequence[str], ranks: int, word: str) -> Iterator[Failure]:
    """What ended badly: on each node, else what the batch script said last, else Slurm's own word."""
    bad = [(rank, host, row["ends"][host]) for rank, host in enumerate(hosts) if row["ends"].get(host)]
    parts = [
        Failure(
            host,
            None if end["local_rank"] is None else rank * ranks + int(end["local_rank"]),
            str(end["kind"]),
            str(end["message"]),
            end["exit_status"],
            float(end["time"]),
        )
        for rank, host, end in bad
        if end["exit_status"]
    ]
    if word in _BY_SLURM:
        yield Failure("slurm", None, "start", _BY_SLURM[word])
    elif word == "NODE_FAIL":
        silent = [host for host in hosts if not row["ends"].get(host)]
        yield Failure(silent[0] if silent else "slurm", None, "host_lost", "Slurm lost the node (NODE_FAIL)")
    elif not parts:
        words = str(row["batch"]).strip().splitlines()
        yield Failure("slurm", None, "start", words[-1] if words else f"{word} {row['reason']}".strip())
    yield from parts
