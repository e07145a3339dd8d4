"""The ledger as a file: a journal beside the history to which events are added, and what follows from all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from nodectl import __version__
from nodectl.common.documents import values_of
from nodectl.ledger.events import Event, EventKind, Hold, KeptPart, Recognised, minute
from nodectl.ledger.history.database import Database, moment, number
from nodectl.ledger.parts import by_name, concerned, identity_kind, is_machine_id, told_apart
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Part, PartKind, Seen
from nodectl.model.status import Status

EVENT_COLUMNS = (
    *("time", "kind", "fleet", "host", "who", "reason", "whole", "cordon"),
    *("acceptance", "began", "nature", "verdict", "steps", "left_after", "nodectl"),
)
PART_COLUMNS = ("kind", "part", "model", "place", "serial", "findings")


def event_row(event: Event) -> tuple[object, ...]:
    """In the order of EVENT_COLUMNS."""
    return (
        *(event.time, str(event.kind), event.fleet, event.host, event.who, event.reason, int(event.whole)),
        *(event.cordon, event.acceptance, event.began, event.nature, str(event.verdict or "")),
        *(json.dumps({name: str(status) for name, status in event.steps.items()}), event.left_after, __version__),
    )


def part_row(kept: KeptPart) -> tuple[object, ...]:
    """In the order of PART_COLUMNS."""
    part = kept.part
    findings = json.dumps([asdict(seen) for seen in kept.findings])
    return (str(part.kind), part.id, part.model, part.place, part.serial, findings)


def event_of(row: Sequence[Any], parts: tuple[KeptPart, ...]) -> Event:
    """Read an event from its number and EVENT_COLUMNS; ValueError for anything else, which SQLite would keep, too."""
    number_of, when, kind, fleet, host, who, reason, whole, cordon = row[:9]
    acceptance, began, nature, verdict, steps, left, _ = row[9:]
    status_of = json.loads(steps)
    if not isinstance(status_of, dict):
        raise ValueError(f"event {number_of}: {steps[:40]!r} are no steps")
    return Event(
        *(int(number_of), moment(when), EventKind(kind), str(fleet), str(host), str(who), str(reason), bool(whole)),
        cordon=None if cordon is None else int(number(cordon)),
        acceptance=str(acceptance),
        began=None if began is None else moment(began),
        nature=str(nature),
        verdict=NodeVerdict(verdict) if verdict else None,
        steps={str(name): Status(status) for name, status in status_of.items()},
        left_after=str(left),
        parts=parts,
    )


def kept_of(row: Sequence[Any], host: str) -> KeptPart:
    """Read a part from PART_COLUMNS; ValueError for what is no part."""
    kind, identity, model, place, serial, findings = row
    part = Part(PartKind(kind), str(identity), str(host), str(model), str(place), str(serial))
    # a nodectl of another version may have kept more
    return KeptPart(part, values_of(Seen, json.loads(findings), extra="ignore"))


_PASSED = (Status.OK, Status.WARNING)


def lacking(cordon: Event, before: Sequence[Event], host: Sequence[Event]) -> str:
    """Return what is missing for a return; empty where it is proven.

    `before` are the acceptances of the cordoned host: the last one before the cordon says which steps failed. `host`
    are those of the host that is to return, where a part may sit now. Only one that began after the cordon counts.
    """
    since = minute(cordon.time)
    after = [event for event in host if event.id > cordon.id and (event.began or 0.0) >= cordon.time]
    if not after:
        return f"no acceptance of it since it was cordoned on {since}"
    former = next((event for event in reversed(before) if event.id < cordon.id), None)
    failed = former.failed if former is not None else ()
    unproven = [step for step in failed if _last(after, step) not in _PASSED]
    if unproven:
        return f"{', '.join(unproven)} failed before and has not passed since it was cordoned on {since}"
    last = after[-1].verdict
    if last is NodeVerdict.REJECTED:
        return f"its last acceptance rejected it: {', '.join(after[-1].failed) or 'see nodectl ledger show'}"
    if not failed and not (last is not None and last.accepts):
        return f"its last acceptance says: {last}"
    return ""


def _last(events: Sequence[Event], step: str) -> Status | None:
    """Return the step's status in the last acceptance that had it for this host."""
    return next((event.steps[step] for event in reversed(events) if step in event.steps), None)


Key = tuple[PartKind, str]

_EVENT = ", ".join(["e.id", *(f"e.{name}" for name in EVENT_COLUMNS)])
_PART = ", ".join(f"p.{name}" for name in PART_COLUMNS)
_OF_ACCEPTANCE = "e.kind = 'seen' AND e.acceptance = ? AND e.fleet = ? ORDER BY e.id"
# the last look that saw each of some parts
_PLACES = f"""
    SELECT {_PART}, e.id, e.time, e.fleet, e.host FROM (
        SELECT q.kind AS kind, q.part AS part, max(q.event) AS event
        FROM ledger_part q JOIN ledger_event s ON s.id = q.event WHERE s.kind = 'seen' AND {{}} GROUP BY q.kind, q.part
    ) l
    JOIN ledger_part p ON p.event = l.event AND p.part = l.part AND p.kind = l.kind
    JOIN ledger_event e ON e.id = l.event ORDER BY p.kind, p.part
"""  # noqa: S608
_OF_FLEET = "s.fleet = ?"
_OF_HOST = (
    "s.fleet = ? AND q.part IN (SELECT r.part FROM ledger_event t JOIN ledger_part r ON r.event = t.id"
    " WHERE t.fleet = ? AND t.host = ? AND t.kind = 'seen')"
)
_OF_PART = "q.part = ? AND q.kind = ?"
# how the nature of what was done in a lab begins
LAB = "lab"
# what is fine is not kept: that a step passed stands with its status
_TOLD = (Status.FAILED, Status.WARNING, Status.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Place:
    """Hold where a part was seen last, and when; `gone` where another part has its place by now."""

    fleet: str
    host: str
    kept: KeptPart
    time: float
    gone: bool = False


class Ledger(Database):
    """The journal of hosts and their parts; parts are global, a host's name belongs to its fleet.

    Nothing is ever changed or removed: what is so now follows from what was added last.
    """

    def record(self, acceptance: Acceptance) -> tuple[str, ...]:
        """Keep what an acceptance says of each host and its parts; a line for each identity that two hosts claim.

        Recorded twice, as when it was stopped and went on, it adds only what has changed.
        """
        parts, lines = told_apart({row.host: row.parts for row in acceptance.hosts})
        remarks = [*lines]
        with self.transaction():
            kept = {event.host: event for event in self._events(_OF_ACCEPTANCE, (acceptance.id, self.fleet))}
            for row in acceptance.hosts:
                host_parts, copies = self._without_copies(parts[row.host])
                remarks += copies
                if all(part.kind is not PartKind.HOST for part in host_parts):
                    host_parts = (by_name(row.host), *host_parts)
                event = self._of_acceptance(acceptance, row, self._with_findings(acceptance, row.host, host_parts))
                former = kept.get(row.host)
                if former is None or replace(former, id=0, time=0.0) != replace(event, id=0, time=0.0):
                    self._add(event)
        return tuple(remarks)

    def saw(self, host: str, parts: Sequence[Part], when: float | None = None) -> None:
        """Keep which parts a host has, where a look found others than the last one."""
        now, _ = self._without_copies(parts)
        if now and self._last_parts(self.fleet, host) != now:
            kept = tuple(KeptPart(part) for part in now)
            self._keep(Event(0, _now(when), EventKind.SEEN, self.fleet, host, parts=kept))

    def cordon(
        self,
        host: str,
        parts: Sequence[Part],
        reason: str,
        who: str,
        *,
        whole: bool = True,
        acceptance: str = "",
        nature: str = "",
        when: float | None = None,
    ) -> Event:
        """Cordon a host with these parts, or (not `whole`) the parts alone; the acceptance that was the reason.

        What is of a lab by its `nature` holds in that lab alone: hosts of several labs answer from one recording.
        """
        event = Event(
            *(0, _now(when), EventKind.CORDONED, self.fleet, host, who, reason, whole),
            acceptance=acceptance,
            nature=nature,
            parts=tuple(KeptPart(part) for part in parts),
        )
        return self._keep(event)

    def return_(self, hold: Hold, reason: str, who: str, when: float | None = None) -> Event:
        """End what holds the host back, for the host and those of its parts that are still in it."""
        kept = tuple(KeptPart(part) for part in hold.parts)
        event = Event(
            *(0, _now(when), EventKind.RETURNED, self.fleet, hold.host, who, reason, hold.whole, hold.cordon.id),
            parts=kept,
        )
        return self._keep(event)

    def cordoned(self, hosts: Iterable[str]) -> dict[str, tuple[Hold, ...]]:
        """Return the fleet's cordoned hosts with the reasons: by name, or for a part that was last seen in them."""
        wanted = dict.fromkeys(hosts)
        holds: dict[str, list[Hold]] = {}
        for cordon in self._open_here():
            here = {cordon.host} & wanted.keys() if cordon.whole and cordon.fleet == self.fleet else set()
            parts: dict[str, list[Part]] = {host: [] for host in here}
            for kept in cordon.parts:
                place = self.place_of(_key(kept.part), self.fleet)
                fleet, host = (place.fleet, place.host) if place else (cordon.fleet, cordon.host)
                if fleet == self.fleet and host in wanted and not (place and place.gone):
                    parts.setdefault(host, []).append(kept.part)
            for host, held_parts in parts.items():
                holds.setdefault(host, []).append(Hold(host, cordon, host in here, tuple(held_parts)))
        return {host: tuple(holds[host]) for host in wanted if host in holds}

    def recognised(self, parts: Iterable[Part]) -> tuple[Recognised, ...]:
        """Return the parts, as they are in hosts now, that were cordoned in another host or under another name."""
        now: dict[Key, Part] = {_key(part): part for part in parts}
        by_host: dict[str, list[Part]] = {}
        for part in now.values():
            by_host.setdefault(part.host, []).append(part)
        moved = []
        for cordon in self._open_here():
            for kept in cordon.parts:
                there = now.get(_key(kept.part))
                if there is None or (cordon.fleet, cordon.host) == (self.fleet, there.host):
                    continue
                if not _is_copy(there, by_host[there.host], [former.part for former in cordon.parts]):
                    moved.append(Recognised(there, kept.part, cordon))
        return tuple(moved)

    def open_cordons(self) -> tuple[Event, ...]:
        """Every cordon that still holds for its host (`whole`) or a part, of all fleets: without what was returned."""
        returned: dict[int, list[Event]] = {}
        cordons = []
        for event in self._events("e.kind IN ('cordoned', 'returned') ORDER BY e.id", ()):
            if event.kind is EventKind.CORDONED:
                cordons.append(event)
            elif event.cordon is not None:
                returned.setdefault(event.cordon, []).append(event)
        left = [_left_of(cordon, returned.get(cordon.id, ())) for cordon in cordons]
        return tuple(cordon for cordon in left if cordon.whole or cordon.parts)

    def _open_here(self) -> tuple[Event, ...]:
        """Return those that may hold in this fleet."""
        return tuple(
            cordon for cordon in self.open_cordons() if cordon.fleet == self.fleet or not cordon.nature.startswith(LAB)
        )

    def known_parts(self, host: str | None = None) -> dict[Key, Place]:
        """Return where each part (of one host, if named) was last seen in the fleet; those that are gone, too."""
        if host is None:
            return self._places(_OF_FLEET, (self.fleet,))
        places = self._places(_OF_HOST, (self.fleet, self.fleet, host))
        return {key: place for key, place in places.items() if place.host == host}

    def parts_in(self, host: str) -> tuple[Part, ...]:
        """Return the parts that a host had when it was last looked at, and that were not seen elsewhere since."""
        return tuple(place.kept.part for place in self.known_parts(host).values() if not place.gone)

    def place_of(self, key: Key, fleet: str | None = None) -> Place | None:
        """Return where a part was last seen, of one fleet where one is named; None where no look has seen it.

        It is gone where another one has its place. A host that no longer shows it is no proof: a GPU that fell off the
        bus is back after a reboot.
        """
        kind, identity = key
        if fleet is None:
            return self._places(_OF_PART, (identity, str(kind))).get(key)
        return self._places(f"{_OF_PART} AND {_OF_FLEET}", (identity, str(kind), fleet)).get(key)

    def _places(self, condition: str, arguments: Sequence[object]) -> dict[Key, Place]:
        rows = self.rows(_PLACES.format(condition), arguments)
        look_of = cache(self._last_look_id)
        parts_of = cache(self._parts)
        places: dict[Key, Place] = {}
        with self.errors():
            for *part, event, when, fleet, host in rows:
                kept, last = kept_of(part, host), look_of(fleet, host)
                gone = last is not None and last != event and _is_replaced(kept.part, parts_of(last, host))
                places[_key(kept.part)] = Place(str(fleet), str(host), kept, moment(when), gone)
        return places

    def hosts(self) -> tuple[str, ...]:
        """Return the names of the fleet's hosts that the ledger knows."""
        rows = self.rows("SELECT DISTINCT host FROM ledger_event WHERE fleet = ? ORDER BY host", (self.fleet,))
        return tuple(str(row[0]) for row in rows)

    def acceptances(self, fleet: str, host: str) -> tuple[Event, ...]:
        """Return what acceptances said of a host, the oldest first."""
        return self._events(
            "e.kind = 'seen' AND e.acceptance != '' AND e.fleet = ? AND e.host = ? ORDER BY e.id", (fleet, host)
        )

    def life_of_host(self, host: str) -> tuple[Event, ...]:
        """All that happened to a host of the fleet, the oldest first."""
        return self._events("e.fleet = ? AND e.host = ? ORDER BY e.id", (self.fleet, host))

    def life_of_part(self, key: Key) -> tuple[Event, ...]:
        """All that happened to a part, in whatever host it was, the oldest first; of other parts nothing."""
        events = self._events(
            "e.id IN (SELECT event FROM ledger_part WHERE part = ? AND kind = ?) ORDER BY e.id", (key[1], str(key[0]))
        )
        return tuple(
            replace(event, parts=tuple(kept for kept in event.parts if _key(kept.part) == key)) for event in events
        )

    def parts_like(self, text: str) -> tuple[Key, ...]:
        """Return the parts whose identity begins with the text, or whose serial number it is."""
        rows = self.rows(
            "SELECT DISTINCT kind, part FROM ledger_part WHERE lower(substr(part, 1, ?)) = ? OR serial = ?"
            " ORDER BY 1, 2",
            (len(text), text.lower(), text),
        )
        with self.errors():
            return tuple((PartKind(kind), str(identity)) for kind, identity in rows)

    def lacking(self, hold: Hold) -> str:
        """Return what the host has not shown since it was cordoned; empty where it may return."""
        cordon = hold.cordon
        before = self.acceptances(cordon.fleet, cordon.host)
        return lacking(cordon, before, self.acceptances(self.fleet, hold.host))

    def _last_look_id(self, fleet: str, host: str) -> int | None:
        """Return the number of the last event that tells which parts a host has."""
        rows = self.rows(
            "SELECT max(s.id) FROM ledger_event s WHERE s.kind = 'seen' AND s.fleet = ? AND s.host = ?"
            " AND EXISTS (SELECT 1 FROM ledger_part p WHERE p.event = s.id)",
            (fleet, host),
        )
        return None if rows[0][0] is None else int(rows[0][0])

    def _last_parts(self, fleet: str, host: str) -> tuple[Part, ...] | None:
        """Return the parts that the last look found; None where there was none."""
        event = self._last_look_id(fleet, host)
        return None if event is None else tuple(kept.part for kept in self._parts(event, host))

    def _without_copies(self, parts: Sequence[Part]) -> tuple[tuple[Part, ...], list[str]]:
        """Return it without a machine-id that another host was last seen with, whose hardware is none of this one's."""
        kept, lines = [], []
        for part in parts:
            place = self.place_of(_key(part)) if part.kind is PartKind.HOST else None
            elsewhere = place is not None and (place.fleet, place.host) != (self.fleet, part.host)
            if place and elsewhere and _is_copy(part, parts, self._last_parts(place.fleet, place.host) or ()):
                lines.append(
                    f"{part.host} has the machine-id of {place.host} ({part.id}) and none of its hardware: a cloned"
                    " image; the ledger does not keep it for the same host"
                )
            else:
                kept.append(part)
        return tuple(kept), lines

    def _of_acceptance(self, acceptance: Acceptance, row: HostAcceptance, parts: tuple[KeptPart, ...]) -> Event:
        return Event(
            *(0, time.time(), EventKind.SEEN, self.fleet, row.host),
            acceptance=acceptance.id,
            began=acceptance.began,
            nature=acceptance.nature,
            verdict=row.verdict,
            steps=dict(row.steps),
            left_after=row.left_after,
            parts=tuple(replace(kept, part=replace(kept.part, host=row.host)) for kept in parts),
        )

    def _with_findings(self, acceptance: Acceptance, host: str, parts: Sequence[Part]) -> tuple[KeptPart, ...]:
        """Return the parts with what was found of them; a part that is missing now only where a finding names it."""
        relevant = [
            seen
            for seen in acceptance.seen
            if seen.finding.status in _TOLD and host in (seen.finding.host, *seen.finding.hosts)
        ]
        missing = self._missing(host, parts) if relevant else []
        by_part: dict[Key, list[Seen]] = {}
        for seen in relevant:
            for part in concerned(seen.finding, host, [*parts, *missing]):
                by_part.setdefault(_key(part), []).append(seen)
        lost = [part for part in missing if _key(part) in by_part]
        return tuple(KeptPart(part, tuple(by_part.get(_key(part), ()))) for part in (*parts, *lost))

    def _missing(self, host: str, parts: Sequence[Part]) -> list[Part]:
        """GPUs and NICs that were there before, and whose places are empty now."""
        present, taken = {_key(part) for part in parts}, {_address(part) for part in parts} - {""}
        return [
            place.kept.part
            for key, place in self.known_parts(host).items()
            if key[0] is not PartKind.HOST and key not in present
            if not place.gone and _address(place.kept.part) not in taken
        ]

    def _keep(self, event: Event) -> Event:
        """Keep the event with its parts, all or nothing, and return it with its number."""
        with self.transaction():
            return replace(event, id=self._add(event))

    def _add(self, event: Event) -> int:
        """Add an event with its parts within a transaction; its number."""
        cursor = self.connection.execute(_insert("ledger_event", EVENT_COLUMNS), event_row(event))
        number_of = int(cursor.lastrowid or 0)
        self.connection.executemany(
            _insert("ledger_part", ("event", *PART_COLUMNS)), [(number_of, *part_row(kept)) for kept in event.parts]
        )
        return number_of

    def _events(self, condition: str, arguments: Sequence[object]) -> tuple[Event, ...]:
        """Return the events that fit, with their parts."""
        rows = self.rows(f"SELECT {_EVENT} FROM ledger_event e WHERE {condition}", arguments)  # noqa: S608
        with self.errors():
            return tuple(event_of(row, self._parts(int(row[0]), str(row[4]))) for row in rows)

    def _parts(self, event: int, host: str) -> tuple[KeptPart, ...]:
        rows = self.rows(f"SELECT {_PART} FROM ledger_part p WHERE event = ? ORDER BY rowid", (event,))  # noqa: S608
        with self.errors():
            return tuple(kept_of(row, host) for row in rows)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def _key(part: Part) -> Key:
    return part.kind, part.id


def _address(part: Part) -> str:
    return part.place.partition(" at ")[2]


def _is_replaced(part: Part, now: Sequence[KeptPart]) -> bool:
    """Another one has its place; a machine-id does not replace the serial number that the host has, too."""
    others = [kept.part for kept in now if identity_kind(kept.part) == identity_kind(part)]
    return all(other.id != part.id for other in others) and any(_address(other) == _address(part) for other in others)


def _now(when: float | None) -> float:
    return time.time() if when is None else when


def _left_of(cordon: Event, returns: Sequence[Event]) -> Event:
    """Return the cordon without what was returned of it."""
    ended = {_key(kept.part) for event in returns for kept in event.parts}
    parts = tuple(kept for kept in cordon.parts if _key(kept.part) not in ended)
    return replace(cordon, whole=cordon.whole and not any(event.whole for event in returns), parts=parts)


def _is_copy(part: Part, beside: Sequence[Part], former: Sequence[Part]) -> bool:
    """Return whether two machines have this machine-id: the parts beside it now and then have nothing in common.

    A host without a GPU and a NIC that tells its identity cannot be told from its copy: it is taken for the same.
    """
    if part.kind is not PartKind.HOST or not is_machine_id(part.id):
        return False
    now, then = ({other.id for other in parts if other.kind is not PartKind.HOST} for parts in (beside, former))
    return bool(now and then) and not now & then
