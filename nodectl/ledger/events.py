"""Events of the ledger: acceptances of a host, its cordons and its returns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodectl.model.acceptance import HostAcceptance, NodeVerdict
from nodectl.model.status import Status


class EventKind(StrEnum):
    """The kind of an event."""

    JUDGED = "judged"
    CORDONED = "cordoned"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class Judged:
    """A host's part of an acceptance: its id, when it began, and the nature of its figures."""

    acceptance: str
    began: float
    nature: str
    host: HostAcceptance


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a host's journal; `time` in seconds since 1970. `judged` is set for an acceptance."""

    id: int
    time: float
    kind: EventKind
    host: str
    who: str = ""
    reason: str = ""
    judged: Judged | None = None

    @property
    def text(self) -> str:
        """A cordon on one line: host, since when and why."""
        return f"{self.host} is cordoned since {minute(self.time)}: {self.reason}"


def open_cordons(life: Sequence[Event]) -> tuple[Event, ...]:
    """Return the cordons in a host's journal since its last return."""
    cordons: list[Event] = []
    for event in life:
        if event.kind is EventKind.RETURNED:
            cordons = []
        elif event.kind is EventKind.CORDONED:
            cordons.append(event)
    return tuple(cordons)


def lacking(life: Sequence[Event]) -> str:
    """Return what a cordoned host has not shown since it was cordoned; empty if it may return.

    The last acceptance before a cordon says which steps failed. Only one that began after the cordon counts.
    """
    judged = [(event.id, event.judged) for event in life if event.judged is not None]
    for cordon in open_cordons(life):
        former = next((one for number, one in reversed(judged) if number < cordon.id), None)
        after = [one for number, one in judged if number > cordon.id and one.began >= cordon.time]
        if missing := _missing(minute(cordon.time), _failed(former), after):
            return missing
    return ""


_PASSED = (Status.OK, Status.WARNING)


def _missing(since: str, failed: Sequence[str], after: Sequence[Judged]) -> str:
    if not after:
        return f"no acceptance of it since it was cordoned on {since}"
    unproven = [step for step in failed if _last(after, step) not in _PASSED]
    if unproven:
        return f"{', '.join(unproven)} failed before and has not passed since it was cordoned on {since}"
    last = after[-1].host.verdict
    if last is NodeVerdict.REJECTED:
        return f"its last acceptance rejected it: {', '.join(_failed(after[-1])) or 'see nodectl ledger show'}"
    return "" if failed or last.accepts else f"its last acceptance says: {last}"


def _failed(judged: Judged | None) -> tuple[str, ...]:
    return judged.host.failed if judged is not None else ()


def _last(judged: Sequence[Judged], step: str) -> Status | None:
    return next((one.host.steps[step] for one in reversed(judged) if step in one.host.steps), None)


def minute(seconds: float) -> str:
    """Return the seconds since 1970 as local time, to the minute: `2026-11-20 14:30`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
