"""What nodes may say of jobs, as types: `ask` reads every answer by one of them, and refuses another as nonsense.

A key that stands in no type is dropped. Numbers and texts are bounded; what is shown in one line is made one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import TypedDict

from nodectl.common.printable import one_line
from nodectl.payload.jobs.failures import KINDS
from nodectl.payload.jobs.job_id import is_job_id

_LONGEST, _LONGEST_WORD = 1 << 20, 4096
_MOST, _LAST_S = 1 << 53, 1e11

Text: TypeAlias = Annotated[str, StringConstraints(max_length=_LONGEST)]
Line: TypeAlias = Annotated[str, StringConstraints(max_length=_LONGEST), AfterValidator(one_line)]
Word: TypeAlias = Annotated[str, StringConstraints(max_length=_LONGEST_WORD), AfterValidator(one_line)]
# a rank as the key of an object
RankKey: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
Rank: TypeAlias = Annotated[int, Field(ge=0, lt=10**9)]
Whole: TypeAlias = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Number: TypeAlias = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
Time: TypeAlias = Annotated[float, Field(ge=-_LAST_S, le=_LAST_S, allow_inf_nan=False)]


def _kind(text: str) -> str:
    if text not in KINDS:
        raise ValueError(f"no kind of failure is called {text[:40]!r}")
    return text


class Call(TypedDict):
    """A collective of a rank, by torch's flight recorder."""

    collective: Word
    number: Whole
    sizes: NotRequired[Word]
    types: NotRequired[Word | None]


class Group(Call):
    """The last collective of a process group."""

    members: NotRequired[list[Rank] | None]
    recent: NotRequired[list[Call] | None]
    pending: NotRequired[Call | None]


FailureRow = TypedDict(
    "FailureRow",
    {
        "kind": Annotated[str, AfterValidator(_kind)],
        "message": Text,
        "rank": Rank | None,
        "exit_status": Whole | None,
        "time": Time,
        "class": NotRequired[Word],
        "evidence": NotRequired[list[Line]],
        "traceback": NotRequired[Text],
        "flight": NotRequired[dict[Word, Group] | None],
        "lost": NotRequired[Rank],
        "after": NotRequired[list[Rank]],
    },
)


class CauseRow(FailureRow):
    """The failure that ended an attempt."""

    host: Word


class EndRow(TypedDict):
    """How a rank ended."""

    rank: Rank
    code: Whole | None
    time: Time
    stopped: NotRequired[bool]


_State: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=1)]


class HelperRow(TypedDict):
    """A living child of a rank."""

    pid: Rank
    state: _State
    command: Word
    call: Word
    stack: list[Line]


class LivingRow(TypedDict):
    """The place of a living rank; `by`: what told its stack."""

    rank: Rank
    state: _State
    stack: list[Line]
    aside: NotRequired[Line]
    by: NotRequired[Word]
    call: NotRequired[Word]
    helpers: NotRequired[list[HelperRow]]


class DumpRow(TypedDict):
    """A flight recorder's dump, or what is wrong with it."""

    groups: NotRequired[dict[Word, Group]]
    problem: NotRequired[Line]


class AttemptRow(TypedDict):
    """An attempt that is over."""

    number: Rank
    hosts: list[Word]
    begun_at: Time
    ended_at: Time | None
    cause: CauseRow | None


class LeftRow(TypedDict, total=False):
    """Things that a job has left behind."""

    outputs: list[Word]
    more_outputs: Rank
    shared_memory: list[Word]
    more_shared_memory: Rank


class TraceRow(TypedDict):
    """The summary of a traced rank."""

    rank: Rank
    problem: Line
    steps: Rank
    step_ms: NotRequired[Number]
    compute_percent: NotRequired[Number]
    communication_percent: NotRequired[Number]
    overlap_percent: NotRequired[Number]
    idle_percent: NotRequired[Number]


class StateRow(TypedDict):
    """A host's state of a job."""

    state: Word
    final: bool
    failures: NotRequired[list[FailureRow]]
    ends: NotRequired[list[EndRow]]
    living: NotRequired[list[LivingRow]]
    xids: NotRequired[list[Line]]
    flight: NotRequired[dict[RankKey, DumpRow]]
    heard: NotRequired[dict[RankKey, FailureRow]]
    ended_at: NotRequired[Time | None]
    attempt: NotRequired[Annotated[int, Field(ge=1, lt=10**9)]]
    roster: NotRequired[list[Rank]]
    attempts: NotRequired[list[AttemptRow]]
    no_restart: NotRequired[Line]
    left: NotRequired[LeftRow]


class HostRow(TypedDict):
    """A host of a plan."""

    name: Word


class PlanRow(TypedDict):
    """The part of a plan that others may see."""

    id: Word
    created_at: Time
    operator: Word
    script: Line
    args: list[Line]
    hosts: Annotated[list[HostRow], Field(min_length=1, max_length=1 << 14)]
    nproc_per_node: Annotated[int, Field(ge=0, le=1 << 16)]
    nodes: NotRequired[Rank | None]
    restarts: NotRequired[Rank | None]
    skipped: NotRequired[list[Line] | None]


class _JobRow(TypedDict):
    id: Word
    plan: PlanRow | None
    rank: Rank | None
    problem: Line
    alive: bool
    processes: Rank
    state: StateRow
    stopped_by: NotRequired[Word]
    traces: NotRequired[list[TraceRow]]


def _of_its_plan(row: Any) -> Any:
    """Return the row; raise ValueError where its id is none, or not its plan's: an id names a folder."""
    if not is_job_id(row["id"]) or (row["plan"] is not None and row["plan"]["id"] != row["id"]):
        raise ValueError("it lists a job whose id is none, or not its plan's")
    return row


# of `list`
JobRow: TypeAlias = Annotated[_JobRow, AfterValidator(_of_its_plan)]


class CleanRow(TypedDict):
    """A row of `clean`."""

    id: Word
    removed: bool
    problem: Line


class GpuRow(TypedDict):
    """A GPU at this moment."""

    index: Number | None
    use_percent: Number | None
    power_w: Number | None
    limit_w: Number | None
    lost: NotRequired[Number]


class BytesRow(TypedDict):
    """Bytes that came in and went out."""

    in_bytes: Number
    out_bytes: Number


class PulseRow(TypedDict):
    """A row of `pulse`."""

    state: Word
    attempt: Rank
    alive: bool
    step: Whole | None
    total: Whole | None
    output_age_s: Time | None
    gpus: list[GpuRow]
    network: BytesRow | None
    rdma: BytesRow | None
    time_s: Number


class RankRow(LivingRow):
    """A living rank in two looks."""

    moved: bool
    cpu: Number
    output_age_s: Time | None
    store: NotRequired[list[Word]]


class ExamineRow(TypedDict):
    """A row of `examine`."""

    ranks: list[RankRow]
    listeners: NotRequired[list[Line]]
    network: dict[Word, Number]
    gpus: list[GpuRow]
    ras: Text
    flight: NotRequired[dict[RankKey, DumpRow]]
    xids: list[Line]
    groups: NotRequired[list[Line]]
    ended: NotRequired[list[Rank]]


class MachineRow(TypedDict, total=False):
    """A whole machine in the black box: texts of the kernel and of nvidia-smi, and lists of lines."""

    memory: Text
    pressure: dict[Word, Text]
    top: list[Line]
    blocked: list[Line]
    mounts: list[Line]
    memory_kills: Whole | None
    errors: dict[Word, Whole]
    smi: Text
    nvlink: Text
    nvlink_before: Text
    full: list[Line]


class TakingRow(ExamineRow):
    """A row of `black_box`."""

    at: Time
    attempt: Rank
    kind: Literal["suspicion", "end"]
    why: Line
    host: MachineRow
    times: NotRequired[dict[Word, Time]]


class SurveyRow(TypedDict):
    """A row of `survey`."""

    sees_token: bool


class ListenRow(TypedDict, total=False):
    """A word of the first host while it listens."""

    listening: bool
    late_s: Number


class LogRow(TypedDict, total=False):
    """A frame of `jobs.logs`."""

    text: str
    goes_on: bool
    rank: Rank | None
    file: Word
    offset: Whole
    dropped: Whole
    offsets: dict[Word, Whole]
    end: bool
