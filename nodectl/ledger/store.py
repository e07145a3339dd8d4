"""The ledger: events of hosts (acceptances, cordons, returns), in a file next to the history; they are only added."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from nodectl import __version__
from nodectl.common.documents import values_of
from nodectl.ledger.history.database import Database
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict
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
        if missing := _missing(minute(cordon.time), former.host.failed if former else (), after):
            return missing
    return ""


_PASSED = (Status.OK, Status.WARNING)


def _missing(since: str, failed: Sequence[str], after: Sequence[Judged]) -> str:
    if not after:
        return f"no acceptance of it since it was cordoned on {since}"
    statuses: dict[str, Status] = {}
    for judged in after:
        statuses |= judged.host.steps
    unproven = [step for step in failed if statuses.get(step) not in _PASSED]
    if unproven:
        return f"{', '.join(unproven)} failed before and has not passed since it was cordoned on {since}"
    last = after[-1].host.verdict
    if last is NodeVerdict.REJECTED:
        return f"its last acceptance rejected it: {', '.join(after[-1].host.failed) or 'see nodectl ledger show'}"
    return "" if failed or last.accepts else f"its last acceptance says: {last}"


def minute(seconds: float) -> str:
    """Return the seconds since 1970 as local time, to the minute: `2026-11-20 14:30`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


_COLUMNS = "id, time, kind, host, who, reason, judged"


class Ledger(Database):
    """The journal of the fleet's hosts by their inventory names; the state follows from the events."""

    def record(self, acceptance: Acceptance) -> None:
        """Keep what an acceptance says of each host."""
        with self.transaction():
            for row in acceptance.hosts:
                judged = Judged(acceptance.id, acceptance.began, acceptance.nature, row)
                self._add(Event(0, time.time(), EventKind.JUDGED, row.host, judged=judged))

    def cordon(self, host: str, reason: str, who: str, when: float | None = None) -> Event:
        """Cordon a host."""
        return self._keep(Event(0, _now(when), EventKind.CORDONED, host, who, reason))

    def return_(self, host: str, reason: str, who: str, when: float | None = None) -> Event:
        """End all cordons of a host."""
        return self._keep(Event(0, _now(when), EventKind.RETURNED, host, who, reason))

    def cordoned(self, hosts: Iterable[str]) -> dict[str, tuple[Event, ...]]:
        """Return those of the hosts that are cordoned, with their open cordons."""
        lives: dict[str, list[Event]] = {}
        for event in self._events("kind != 'judged'"):
            lives.setdefault(event.host, []).append(event)
        holds = {host: open_cordons(lives.get(host, ())) for host in hosts}
        return {host: cordons for host, cordons in holds.items() if cordons}

    def hosts(self) -> tuple[str, ...]:
        """Return the names of the fleet's hosts that the ledger knows."""
        rows = self.rows("SELECT DISTINCT host FROM ledger_event WHERE fleet = ? ORDER BY host", (self.fleet,))
        return tuple(str(row[0]) for row in rows)

    def life(self, host: str) -> tuple[Event, ...]:
        """Return all that happened to a host, the oldest first."""
        return self._events("host = ?", host)

    def _keep(self, event: Event) -> Event:
        with self.transaction():
            return replace(event, id=self._add(event))

    def _add(self, event: Event) -> int:
        judged = "" if event.judged is None else json.dumps(asdict(event.judged))
        cursor = self.connection.execute(
            "INSERT INTO ledger_event (time, kind, fleet, host, nodectl, who, reason, judged)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (event.time, event.kind, self.fleet, event.host, __version__, event.who, event.reason, judged),
        )
        return int(cursor.lastrowid or 0)

    def _events(self, condition: str, *arguments: str) -> tuple[Event, ...]:
        query = f"SELECT {_COLUMNS} FROM ledger_event WHERE fleet = ? AND {condition} ORDER BY id"  # noqa: S608
        rows = self.rows(query, (self.fleet, *arguments))
        with self.errors():
            return tuple(map(_event, rows))


def _event(row: Sequence[Any]) -> Event:
    number, when, kind, host, who, reason, text = row
    # a nodectl of another version may have kept more
    judged = values_of(Judged, [json.loads(text)], extra="ignore")[0] if text else None
    return Event(number, when, EventKind(kind), host, who, reason, judged)


def _now(when: float | None) -> float:
    return time.time() if when is None else when
