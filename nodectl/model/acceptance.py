"""What an acceptance says: a verdict for each host, and the steps that led to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status

# in the year 5138; what is later is no time
_LATEST_S = 1e11


class NodeVerdict(StrEnum):
    """The verdict on a host; only the first two are an acceptance."""

    ACCEPTED = "accepted"
    REMARKS = "accepted with remarks"
    REJECTED = "rejected"
    UNTOLD = "could not tell"

    @property
    def accepts(self) -> bool:
        """Return whether the host may be used."""
        return self in (NodeVerdict.ACCEPTED, NodeVerdict.REMARKS)

    @property
    def status(self) -> Status:
        """The status that stands for it in exit statuses and in colours."""
        return _STATUSES[self]


_STATUSES = {
    NodeVerdict.ACCEPTED: Status.OK,
    NodeVerdict.REMARKS: Status.WARNING,
    NodeVerdict.REJECTED: Status.FAILED,
    NodeVerdict.UNTOLD: Status.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """A GPU of a host: `place` is where it is now (`GPU 3 at 0000:1b:00.0`); `serial` is empty if it reports none."""

    place: str
    uuid: str
    model: str = ""
    serial: str = ""

    @property
    def text(self) -> str:
        """UUID and serial number."""
        return f"{self.uuid} (serial {self.serial})" if self.serial else self.uuid


class StepState(StrEnum):
    """How far a step of the plan has come."""

    WAITING = "waiting"
    DONE = "done"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the plan for `hosts`; `scope` is node, pair, group or fleet; `why` says why it was left out."""

    name: str
    about: str
    scope: str
    hosts: tuple[str, ...] = ()
    planned_s: float = 0.0
    took_s: float | None = None
    state: StepState = StepState.WAITING
    why: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding, and the step that saw it."""

    step: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Taken:
    """A measurement, and the step that took it."""

    step: str
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class HostAcceptance:
    """A host's verdict; `steps` has its status in each step that it took part in, in order.

    `left_after` is the step after which it was not asked again; `reasons` are the findings that made the verdict.
    `serial` is the machine's serial number, which only root may read.
    """

    host: str
    verdict: NodeVerdict
    steps: Mapping[str, Status] = field(default_factory=dict)
    left_after: str = ""
    reasons: tuple[Seen, ...] = ()
    serial: str = ""
    gpus: tuple[GpuIdentity, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The steps that failed."""
        return tuple(name for name, status in self.steps.items() if status is Status.FAILED)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One run of `nodectl accept`; `ended` is None while it runs; `nature` is measured, lab or recorded."""

    id: str
    level: str
    fleet: str
    began: float
    ended: float | None
    nature: str
    nodectl: str
    steps: tuple[Step, ...] = ()
    hosts: tuple[HostAcceptance, ...] = ()
    seen: tuple[Seen, ...] = ()
    taken: tuple[Taken, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if a time is none that a calendar has: it may be somebody's document."""
        for name, seconds in (("began", self.began), ("ended", self.ended)):
            if seconds is not None and not 0 <= seconds < _LATEST_S:
                raise ValueError(f"{name}: {seconds} is not a time in seconds since 1970")


def node_verdict(statuses: Iterable[Status]) -> NodeVerdict:
    """Return the verdict: a failure rejects, an unknown is no acceptance, a warning is a remark."""
    present = set(statuses)
    for verdict in (NodeVerdict.REJECTED, NodeVerdict.UNTOLD, NodeVerdict.REMARKS):
        if verdict.status in present:
            return verdict
    return NodeVerdict.ACCEPTED
