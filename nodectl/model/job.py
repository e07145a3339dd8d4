"""A job to every other module: its parts, state and first failure; its ranks now, its progress, and its traces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class JobState(StrEnum):
    """State of a whole job; `ending`: processes of it are left; `restarting`: another attempt is about to begin."""

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
    """One thing that went wrong; `rank` is the training program's, None if the whole host or its launcher failed.

    `kind` is one of time_limit, signal, exception, exit, start, left, rebooted, host_lost, supervisor,
    link, launcher, communication, terminated; `category` is its class, narrower (disk_full, import_error, …). `time`
    is by the host's clock. `traceback` is whole, or its end.
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
    code's folder there, the last entry may be how many more there are.
    """

    host: str
    rank: int
    state: str
    processes: int = 0
    supervised: bool = False
    problem: str = ""
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The shares of a traced rank's steps, None if there is a `problem`; `step_ms` is their median."""

    host: str
    rank: int
    problem: str
    steps: int
    step_ms: float | None = None
    compute_percent: float | None = None
    communication_percent: float | None = None
    overlap_percent: float | None = None
    idle_percent: float | None = None


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that failed and was followed by another, with its cause."""

    number: int
    hosts: tuple[str, ...]
    begun_at: float
    ended_at: float | None
    cause: Failure | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One launch over its hosts, as far as they could be asked; times are seconds since the epoch.

    `nodes` are those of its hosts that take part in the newest attempt, in the order of their node ranks. `skipped` is
    what preflight had found and its operator let pass.
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
    attempt: int = 1
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    past: tuple[PastAttempt, ...] = ()
    no_restart: str = ""
    stopped_by: str = ""
    skipped: tuple[str, ...] = ()
    traces: tuple[RankTrace, ...] = ()

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts of the job that could not be asked."""
        return tuple(part.host for part in self.parts if part.state == "unreachable")


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank: where it is, whether that is in a collective, and whether it moved between two looks 2 s apart."""

    host: str
    rank: int
    waits: bool
    doing: str
    call: str
    moved: bool
    cpu: float
    output_age_s: float | None
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """All ranks that were seen, the verdict over them, what else hosts told, and hosts that told nothing."""

    ranks: tuple[RankNow, ...]
    verdict: str
    missing: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taking:
    """A look that the hosts kept by themselves: when (seconds since 1970), of which kind (suspicion, end), and why."""

    at: float
    kind: str
    why: str
    look: Look


@dataclass(frozen=True, slots=True)
class Gpus:
    """A host's GPUs together, but for the `lost` ones (indexes); `wait`: all are in use, and draw little."""

    count: int
    use_percent: float | None
    power_w: float | None
    limit_w: float | None
    wait: bool = False
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulse:
    """One host at one moment; rates are from the look before to this one, None for the first."""

    host: str
    state: str
    attempt: int = 1
    alive: bool = False
    step: int | None = None
    total: int | None = None
    output_age_s: float | None = None
    gpus: Gpus | None = None
    network: Mapping[str, float] | None = None
    steps_per_s: float | None = None
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    time_s: float = 0.0
    waits_s: float = 0.0
    problem: str = ""
