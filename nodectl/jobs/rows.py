"""The rows that hosts report of jobs: `ask` validates each answer once, and everything behind it trusts these types.

A key that no type lists is dropped. A `Line` is printed in one line, without control characters.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import TypedDict

from nodectl.common.printable import one_line
from nodectl.payload.jobs.failures import KINDS
from nodectl.payload.jobs.job_id import is_job_id

Line: TypeAlias = Annotated[str, AfterValidator(one_line)]
# a rank as the key of an object
RankKey: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]


class Call(TypedDict):
    """A collective of a rank, by torch's flight recorder."""

    collective: Line
    number: int
    sizes: NotRequired[Line]
    types: NotRequired[Line | None]


class Group(Call):
    """The last collective of a process group."""

    members: NotRequired[list[int] | None]
    recent: NotRequired[list[Call] | None]
    pending: NotRequired[Call | None]


FailureRow = TypedDict(
    "FailureRow",
    {
        "kind": Literal[KINDS],  # type: ignore[valid-type]  # mypy takes no tuple
        "message": str,
        "rank": int | None,
        "exit_status": int | None,
        "time": float,
        "class": NotRequired[Line],
        "evidence": NotRequired[list[Line]],
        "traceback": NotRequired[str],
        "flight": NotRequired[dict[Line, Group] | None],
        "lost": NotRequired[int],
        "after": NotRequired[list[int]],
    },
)


class CauseRow(FailureRow):
    """The failure that ended an attempt."""

    host: Line


class EndRow(TypedDict):
    """How a rank ended."""

    rank: int
    code: int | None
    time: float
    stopped: NotRequired[bool]


class HelperRow(TypedDict):
    """A living child of a rank."""

    pid: int
    state: Line
    command: Line
    call: Line
    stack: list[Line]


class LivingRow(TypedDict):
    """The place of a living rank; `by`: what told its stack."""

    rank: int
    state: Line
    stack: list[Line]
    by: NotRequired[Line]
    call: NotRequired[Line]
    helpers: NotRequired[list[HelperRow]]


class DumpRow(TypedDict):
    """A flight recorder's dump, or what is wrong with it."""

    groups: NotRequired[dict[Line, Group]]
    problem: NotRequired[Line]


class AttemptRow(TypedDict):
    """An attempt that is over."""

    number: int
    hosts: list[Line]
    begun_at: float
    ended_at: float | None
    cause: CauseRow | None


class TraceRow(TypedDict):
    """The summary of a traced rank."""

    rank: int
    problem: Line
    steps: int
    step_ms: NotRequired[float]
    compute_percent: NotRequired[float]
    communication_percent: NotRequired[float]
    overlap_percent: NotRequired[float]
    idle_percent: NotRequired[float]


class StateRow(TypedDict):
    """A host's state of a job."""

    state: Line
    final: bool
    failures: NotRequired[list[FailureRow]]
    ends: NotRequired[list[EndRow]]
    living: NotRequired[list[LivingRow]]
    xids: NotRequired[list[Line]]
    flight: NotRequired[dict[RankKey, DumpRow]]
    heard: NotRequired[dict[RankKey, FailureRow]]
    ended_at: NotRequired[float | None]
    attempt: NotRequired[int]
    roster: NotRequired[list[int]]
    attempts: NotRequired[list[AttemptRow]]
    no_restart: NotRequired[Line]
    outputs: NotRequired[list[Line]]


class HostRow(TypedDict):
    """A host of a plan."""

    name: Line


class PlanRow(TypedDict):
    """The part of a plan that others may see."""

    id: Line
    created_at: float
    operator: Line
    script: Line
    args: list[Line]
    hosts: Annotated[list[HostRow], Field(min_length=1)]
    nproc_per_node: int
    nodes: NotRequired[int | None]
    restarts: NotRequired[int | None]
    skipped: NotRequired[list[Line] | None]


class _JobRow(TypedDict):
    id: Line
    plan: PlanRow | None
    rank: int | None
    problem: Line
    alive: bool
    processes: int
    state: StateRow
    stopped_by: NotRequired[Line]
    traces: NotRequired[list[TraceRow]]


def _of_its_plan(row: Any) -> Any:
    """Return the row; raise ValueError if its id is none, or not its plan's: an id names a folder."""
    if not is_job_id(row["id"]) or (row["plan"] is not None and row["plan"]["id"] != row["id"]):
        raise ValueError("its job id is none, or not its plan's")
    return row


# of `list`
JobRow: TypeAlias = Annotated[_JobRow, AfterValidator(_of_its_plan)]


class CleanRow(TypedDict):
    """A row of `clean`."""

    id: Line
    removed: bool
    problem: Line


class GpuRow(TypedDict):
    """A GPU at this moment."""

    index: float | None
    use_percent: float | None
    power_w: float | None
    limit_w: float | None
    lost: NotRequired[float]


class BytesRow(TypedDict):
    """Bytes that came in and went out."""

    in_bytes: float
    out_bytes: float


class PulseRow(TypedDict):
    """A row of `pulse`."""

    state: Line
    attempt: int
    alive: bool
    step: int | None
    total: int | None
    output_age_s: float | None
    gpus: list[GpuRow]
    network: BytesRow | None
    rdma: BytesRow | None
    time_s: float


class RankRow(LivingRow):
    """A living rank in two looks."""

    moved: bool
    cpu: float
    output_age_s: float | None


class ExamineRow(TypedDict):
    """A row of `examine`."""

    ranks: list[RankRow]
    network: dict[Line, float]
    gpus: list[GpuRow]
    ras: str
    flight: NotRequired[dict[RankKey, DumpRow]]
    xids: list[Line]
    ended: NotRequired[list[int]]


class MachineRow(TypedDict, total=False):
    """A whole machine in the black box: texts of the kernel and of nvidia-smi, and lists of lines."""

    memory: str
    blocked: list[Line]
    smi: str
    full: list[Line]


class TakingRow(ExamineRow):
    """A row of `black_box`."""

    at: float
    attempt: int
    kind: Literal["suspicion", "end"]
    why: Line
    host: MachineRow
    times: NotRequired[dict[Line, float]]


class SurveyRow(TypedDict):
    """A row of `survey`."""

    sees_token: bool


class LogRow(TypedDict, total=False):
    """A frame of `jobs.logs`."""

    text: str
    rank: int | None
    file: Line
    offset: int
    dropped: int
    offsets: dict[Line, int]
    end: bool
