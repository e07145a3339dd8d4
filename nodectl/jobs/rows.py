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


# a collective of a rank, by torch's flight recorder
class _Call(TypedDict):
    collective: Line
    number: int
    sizes: NotRequired[Line]
    types: NotRequired[Line | None]


# the last collective of a process group
class _Group(_Call):
    members: NotRequired[list[int] | None]
    recent: NotRequired[list[_Call] | None]
    pending: NotRequired[_Call | None]


_FailureRow = TypedDict(
    "_FailureRow",
    {
        "kind": Literal[KINDS],  # type: ignore[valid-type]  # mypy takes no tuple
        "message": str,
        "rank": int | None,
        "exit_status": int | None,
        "time": float,
        "class": NotRequired[Line],
        "evidence": NotRequired[list[Line]],
        "traceback": NotRequired[str],
        "flight": NotRequired[dict[Line, _Group] | None],
        "lost": NotRequired[int],
        "after": NotRequired[list[int]],
    },
)


class _CauseRow(_FailureRow):
    host: Line


class _EndRow(TypedDict):
    rank: int
    code: int | None
    time: float
    stopped: NotRequired[bool]


class _HelperRow(TypedDict):
    pid: int
    state: Line
    command: Line
    call: Line
    stack: list[Line]


# `by`: what told the rank's stack
class _LivingRow(TypedDict):
    rank: int
    state: Line
    stack: list[Line]
    by: NotRequired[Line]
    call: NotRequired[Line]
    helpers: NotRequired[list[_HelperRow]]


class _DumpRow(TypedDict):
    groups: NotRequired[dict[Line, _Group]]
    problem: NotRequired[Line]


class _AttemptRow(TypedDict):
    number: int
    hosts: list[Line]
    begun_at: float
    ended_at: float | None
    cause: _CauseRow | None


class _TraceRow(TypedDict):
    rank: int
    problem: Line
    steps: int
    step_ms: NotRequired[float]
    compute_percent: NotRequired[float]
    communication_percent: NotRequired[float]
    overlap_percent: NotRequired[float]
    idle_percent: NotRequired[float]


class _StateRow(TypedDict):
    state: Line
    final: bool
    failures: NotRequired[list[_FailureRow]]
    ends: NotRequired[list[_EndRow]]
    living: NotRequired[list[_LivingRow]]
    xids: NotRequired[list[Line]]
    flight: NotRequired[dict[RankKey, _DumpRow]]
    heard: NotRequired[dict[RankKey, _FailureRow]]
    ended_at: NotRequired[float | None]
    attempt: NotRequired[int]
    roster: NotRequired[list[int]]
    attempts: NotRequired[list[_AttemptRow]]
    no_restart: NotRequired[Line]
    outputs: NotRequired[list[Line]]


class _HostRow(TypedDict):
    name: Line


class _PlanRow(TypedDict):
    id: Line
    created_at: float
    operator: Line
    script: Line
    args: list[Line]
    hosts: Annotated[list[_HostRow], Field(min_length=1)]
    nproc_per_node: int
    nodes: NotRequired[int | None]
    restarts: NotRequired[int | None]
    skipped: NotRequired[list[Line] | None]


class _JobRow(TypedDict):
    id: Line
    plan: _PlanRow | None
    rank: int | None
    problem: Line
    alive: bool
    processes: int
    state: _StateRow
    stopped_by: NotRequired[Line]
    traces: NotRequired[list[_TraceRow]]


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


class _GpuRow(TypedDict):
    index: float | None
    use_percent: float | None
    power_w: float | None
    limit_w: float | None
    lost: NotRequired[float]


class _BytesRow(TypedDict):
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
    gpus: list[_GpuRow]
    network: _BytesRow | None
    rdma: _BytesRow | None
    time_s: float


class _RankRow(_LivingRow):
    moved: bool
    cpu: float
    output_age_s: float | None


class ExamineRow(TypedDict):
    """A row of `examine`."""

    ranks: list[_RankRow]
    network: dict[Line, float]
    gpus: list[_GpuRow]
    ras: str
    flight: NotRequired[dict[RankKey, _DumpRow]]
    xids: list[Line]
    ended: NotRequired[list[int]]


# texts of the kernel and of nvidia-smi, and lists of lines
class _MachineRow(TypedDict, total=False):
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
    host: _MachineRow
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
