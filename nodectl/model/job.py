"""What a job is to every other module: its parts on the hosts, its state, and what ended it first."""

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """State of a whole job; `ending`: it has failed or is being stopped, and processes of it are still there.

    `restarting`: an attempt has failed, and its hosts are about to begin another.
    """

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    ENDING = "ending"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """Return whether nothing of it runs any more on any host that could be asked."""
        return self in (JobState.FINISHED, JobState.FAILED, JobState.STOPPED)


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that went wrong; `rank` is the training program's, None where the whole host or its launcher failed.

    `kind` is one of time_limit, signal, exception, exit, checkpoint, start, left, rebooted, host_lost, supervisor,
    link, launcher, communication, terminated; `category` is its class, narrower (disk_full, import_error, …). `time`
    is by the clock of the job's first host that answered. `traceback` is whole, or its end.
    """

    host: str
    rank: int | None
    kind: str
    message: str
    exit_status: int | None = None
    time: float = 0.0
    category: str = ""
    evidence: tuple[str, ...] = ()
    traceback: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class JobPart:
    """One host's share of a job; `state` also lost (its supervisor died), unreachable, absent or received.

    `cut off`: it waits for another attempt, and the job is over. `outputs` are files that the job has written into its
    code's folder there, `shared_memory` into /dev/shm: names, and last how many more there are.
    """

    host: str
    rank: int
    state: str
    processes: int = 0
    supervised: bool = False
    problem: str = ""
    outputs: tuple[str, ...] = ()
    shared_memory: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that Slurm runs; `reason` is why it waits or ended, `nodes` how many it was asked for."""

    id: int
    state: str
    reason: str
    nodes: int


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """A run of the job's ranks that failed and was followed by another; `cause` as the hosts then knew it.

    A host that was silent then, and can be asked now, tells its own.
    """

    number: int
    hosts: tuple[str, ...]
    begun_at: float
    ended_at: float | None
    cause: Failure | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One launch over its hosts, as far as they could be asked; times are seconds since the epoch.

    `slurm` is set where Slurm runs it; until it gives the job its nodes, `hosts` are those that were asked for.
    `nodes` are those of its hosts that take part in the newest attempt, in the order of their node ranks. `skipped` is
    what preflight had found and its operator let pass. `remarks` are sentences about ranks that ended well.
    """

    id: str
    state: JobState
    hosts: tuple[str, ...]
    script: str
    args: tuple[str, ...]
    nproc_per_node: int
    parts: tuple[JobPart, ...]
    exit_status: int | None = None
    first_failure: Failure | None = None
    consequences: tuple[Failure, ...] = ()
    created_at: float = 0.0
    ended_at: float | None = None
    operator: str = ""
    checkpoint: str = ""
    slurm: SlurmJob | None = None
    attempt: int = 1
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    past: tuple[PastAttempt, ...] = ()
    no_restart: str = ""
    stopped_by: str = ""
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts of the job that could not be asked."""
        return tuple(part.host for part in self.parts if part.state == "unreachable")

    @property
    def witnesses(self) -> int:
        """How many of its hosts know it; all, where it is Slurm that does."""
        absent = ("absent", "unreachable") if self.slurm is None else ()
        return sum(part.state not in absent for part in self.parts)
