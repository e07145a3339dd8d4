"""What a case is: an event, the phase of the job that it meets, and what docs/jobs.md promises of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scripts.chaos.trial import Trial

# what the launch is told, and the steps of docs/jobs.md, 'How a job ends'
LEASE_S = 5.0
TOLD_S = 1.0 + 3.0
SILENT_S = LEASE_S + TOLD_S
STOP_S = 3.0
# a busy machine reacts so much later: this is multiplied by its slowness, and what is promised is not
REACTION_S = 1.5


class Phase(StrEnum):
    """A phase of a job that an event meets; `RESTARTED`: it runs, and has a restart or a spare left."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTED = "restarted"


class Moment(StrEnum):
    """How far a start has come."""

    SAID = "its id was said"
    SUPERVISED = "each host has a supervisor"
    SPAWNED = "the victim's rank is there"


@dataclass(frozen=True, slots=True)
class Expect:
    """The end of a case; `promise` are words of docs/jobs.md.

    `states`: one of these must `jobs why` say (`undone`: it knows no such job; `unseen`: nobody is left to ask).
    `classes`, `host`, `rank`: of the cause; none of them is looked at if there are no classes.
    `within_s`: no rank lives so long after the event; None: the job goes on.
    `exits`: of the launch; None: whatever it was, as where it was killed itself. `lasts_s`: the longest that it goes on
    showing output. `keeps`: kinds of things that may stay until `jobs clean`.
    """

    promise: str
    states: tuple[str, ...]
    classes: tuple[str, ...] = ()
    host: int | None = 1
    rank: int | None = None
    within_s: float | None = None
    exits: tuple[int, ...] | None = (1,)
    lasts_s: float = 30.0
    keeps: tuple[str, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Return whether the job is to go on."""
        return self.within_s is None


def _nothing(_: Trial) -> None:
    return None


def _is_possible() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Event:
    """`act` lets it happen, `undo` ends it when the ranks have ended or gone on; both know their trial's phase.

    `prepare` comes before the launch.

    `args` are the script's, `options` nodectl's; `missing`: why this machine cannot have the event, or nothing.
    `loses_lab`: another one must be brought up after it.
    """

    name: str
    about: str
    act: Callable[[Trial], None]
    expects: Mapping[Phase, Expect]
    undo: Callable[[Trial], None] = _nothing
    prepare: Callable[[Trial], None] = _nothing
    args: Mapping[Phase, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[Phase, tuple[str, ...]] = field(default_factory=dict)
    moment: Moment = Moment.SPAWNED
    missing: Callable[[], str] = _is_possible
    loses_lab: bool = False
