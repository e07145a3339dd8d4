"""Measurements as they are kept, each under the identity of what was measured; safe under many nodectl."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl import __version__
from nodectl.common.units import format_size
from nodectl.ledger.history.database import Database
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import kind_of


@dataclass(frozen=True, slots=True)
class Identity:
    """Hold what was measured, whenever that was."""

    probe: str
    hosts: tuple[str, ...]
    direction: str
    unit: str
    subject: str = ""
    size_bytes: int | None = None

    @property
    def key(self) -> str:
        """The same text for the same thing."""
        return json.dumps([self.probe, self.hosts, self.direction, self.unit, self.subject, self.size_bytes])

    @property
    def kind(self) -> str:
        """Return what a finding about it blames: the host, the path between two, or of a group none of them."""
        return {1: "host", 2: "path"}.get(len(self.hosts), "")

    @property
    def label(self) -> str:
        """For people: `nccl node01,node02 all_reduce 1 MiB`."""
        where = self.direction or ",".join(self.hosts)
        size = None if self.size_bytes is None else format_size(self.size_bytes)
        return " ".join(filter(None, [self.probe, where, self.subject, size]))


def identity_of(measurement: Measurement) -> Identity:
    """Return the identity of a measurement: the same for two measurements of the same thing."""
    size = measurement.conditions.get("size_bytes")
    return Identity(
        measurement.probe,
        measurement.hosts,
        measurement.direction,
        measurement.unit,
        kind_of(measurement.probe).subject(measurement.conditions),
        size if isinstance(size, int) else None,
    )


_JOINED = "FROM measurement m JOIN run r ON r.id = m.run"
_COLUMNS = "m.probe, m.hosts, m.value, m.unit, m.direction, m.expected, m.spread, m.conditions"


@dataclass(frozen=True, slots=True)
class Past:
    """A measurement as it was kept, with the run's number and time (seconds since 1970)."""

    run: int
    time: float
    measurement: Measurement


class History(Database):
    """Measurements of fleets; a fleet is named by its inventory, for hosts of two may share their names.

    What was kept later is later: a clock that was once ahead does not make its runs the latest for good.
    """

    def add(self, measurements: Sequence[Measurement], when: float | None = None) -> int:
        """Keep a run's measurements, all or none; the run's number."""
        with self.transaction():
            now = time.time() if when is None else when
            cursor = self.connection.execute(
                "INSERT INTO run (time, fleet, nodectl) VALUES (?, ?, ?)", (now, self.fleet, __version__)
            )
            run = int(cursor.lastrowid or 0)
            self.connection.executemany(
                "INSERT INTO measurement (run, identity, probe, hosts, direction, value, unit, expected, spread,"
                " conditions) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_row(run, measurement) for measurement in measurements],
            )
        return run

    def last(self, like: Iterable[Measurement], *, upto: float, before_run: int | None = None) -> dict[str, Past]:
        """Identity → the latest measurement of the same thing until then and before that run, if there is one."""
        most = _MOST if before_run is None else before_run
        latest: dict[str, Past] = {}
        for key in {identity_of(measurement).key for measurement in like}:
            for past in self._past(
                " WHERE m.identity = ? AND r.fleet = ? AND r.time <= ? AND m.run < ? ORDER BY m.run DESC LIMIT 1",
                (key, self.fleet, upto, most),
            ):
                latest[key] = past
        return latest

    def past(self, probes: Sequence[str] = (), *, since: float = 0.0, run: int | None = None) -> list[Past]:
        """Return the fleet's measurements as they were kept: of some probes, since a moment, or of one run."""
        wanted = f" AND m.probe IN ({', '.join('?' * len(probes))})" if probes else ""
        of_run = "" if run is None else " AND m.run = ?"
        return self._past(
            f" WHERE r.fleet = ? AND r.time >= ?{wanted}{of_run} ORDER BY m.run, m.rowid",
            (self.fleet, since, *probes, *(() if run is None else (run,))),
        )

    def runs(self) -> list[tuple[int, float, str, int]]:
        """Return number, time, probes and count of measurements of each run of the fleet, the latest first."""
        rows = self.rows(
            "SELECT r.id, r.time, group_concat(DISTINCT m.probe), count(m.run) FROM run r"
            " LEFT JOIN measurement m ON m.run = r.id WHERE r.fleet = ?"
            " GROUP BY r.id ORDER BY r.id DESC",
            (self.fleet,),
        )
        return [(run, when, probes or "", count) for run, when, probes, count in rows]

    def _past(self, condition: str, arguments: Sequence[object]) -> list[Past]:
        rows = self.rows(f"SELECT m.run, r.time, {_COLUMNS} {_JOINED}{condition}", arguments)
        with self.errors():
            return [_past(row) for row in rows]


# larger than any run's number
_MOST = 2**62


def _row(run: int, measurement: Measurement) -> tuple[object, ...]:
    return (
        run,
        identity_of(measurement).key,
        measurement.probe,
        json.dumps(measurement.hosts),
        measurement.direction,
        measurement.value,
        measurement.unit,
        measurement.expected,
        measurement.spread,
        json.dumps(dict(measurement.conditions), default=str),
    )


def _past(row: Sequence[Any]) -> Past:
    run, when, probe, hosts, value, unit, direction, expected, spread, conditions = row
    names = tuple(json.loads(hosts))
    measured = Measurement(probe, names, value, unit, direction, expected, spread, json.loads(conditions))
    return Past(run, when, measured)
