"""Events of the ledger: looks at hosts, cordons and returns, each with the parts that it is about."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.model.acceptance import NodeVerdict, Part, PartKind, Seen
from nodectl.model.status import Status


class EventKind(StrEnum):
    """The kind of an event."""

    SEEN = "seen"
    CORDONED = "cordoned"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A part as it was at that time, and what was found of it then."""

    part: Part
    findings: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal; `time` in seconds since 1970, `fleet` is the inventory's name.

    `whole`: about the host itself, not about parts alone. `cordon` is the number of that which a return ends. What an
    acceptance said has its id, when it `began`, the nature of its figures, the verdict and the status of each step.
    """

    id: int
    time: float
    kind: EventKind
    fleet: str
    host: str
    who: str = ""
    reason: str = ""
    whole: bool = True
    cordon: int | None = None
    acceptance: str = ""
    began: float | None = None
    nature: str = ""
    verdict: NodeVerdict | None = None
    steps: Mapping[str, Status] = field(default_factory=dict)
    left_after: str = ""
    parts: tuple[KeptPart, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The steps that failed."""
        return tuple(name for name, status in self.steps.items() if status is Status.FAILED)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a host is left out: the cordon, and which of the host's parts are under it, as they were when it was made.

    `whole`: the host itself was cordoned by this name.
    """

    host: str
    cordon: Event
    whole: bool
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """Host, since when and why, on one line."""
        since, why = f"cordoned since {minute(self.cordon.time)}", self.cordon.reason
        if self.whole:
            return f"{self.host} is {since}: {why}"
        away = self.cordon.host != self.host
        shown = [f"{part_name(part)}{f' of {self.cordon.host}' if away else ''} ({part.id})" for part in self.parts]
        return f"{self.host} has {few(shown, 2)}, {since}: {why}"


@dataclass(frozen=True, slots=True)
class Recognised:
    """A part that was cordoned in another host, or under another name, and where it is now."""

    now: Part
    then: Part
    cordon: Event

    @property
    def text(self) -> str:
        """`GPU-… in node07 (GPU 3) was cordoned on 2026-11-23 14:05 as GPU 1 of node02: reason`."""
        place = "" if self.now.kind is PartKind.HOST else f" ({part_name(self.now)})"
        former = f"{self.then.host or self.cordon.host}"
        as_what = former if self.now.kind is PartKind.HOST else f"{part_name(self.then)} of {former}"
        when, why = minute(self.cordon.time), self.cordon.reason
        return f"{self.now.id} in {self.now.host}{place} was cordoned on {when} as {as_what}: {why}"


def recognised_lines(recognised: Iterable[Recognised]) -> tuple[str, ...]:
    """Return a line for each host and cordon: its first part (the host itself before others) and how many more."""
    groups: dict[tuple[str, int], list[Recognised]] = {}
    for one in recognised:
        groups.setdefault((one.now.host, one.cordon.id), []).append(one)
    lines = []
    for group in groups.values():
        first = min(group, key=lambda one: one.now.kind is not PartKind.HOST)
        more = f" (and {counted(len(group) - 1, 'more part')})" if len(group) > 1 else ""
        lines.append(first.text + more)
    return tuple(lines)


def part_name(part: Part) -> str:
    """Return `GPU 3`, `mlx5_0`, `the host`: how an operator names it, without its place on the bus."""
    if part.kind is PartKind.HOST:
        return "the host"
    return part.place.partition(" at ")[0].partition(",")[0] or str(part.kind).upper()


def minute(seconds: float) -> str:
    """Return the seconds since 1970 as local time, to the minute: `2026-11-20 14:30`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
