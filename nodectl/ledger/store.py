"""The ledger as a file: a journal of hosts next to the history, to which events are only added."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from nodectl import __version__
from nodectl.common.documents import values_of
from nodectl.ledger.events import Event, EventKind, Judged, open_cordons
from nodectl.ledger.history.database import Database
from nodectl.model.acceptance import Acceptance

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
