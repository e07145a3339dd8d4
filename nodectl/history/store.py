"""The history as a file: one SQLite database in the operator's state folder, safe under several nodectl at once."""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodectl import __version__
from nodectl.errors import NodectlError
from nodectl.history.identity import Identity, identity_of
from nodectl.model.measurement import Measurement
from nodectl.model.verdict import Summary, Verdict

# "ndct", so that a database of another program is not taken for ours
APPLICATION_ID = 0x6E646374

_MEASUREMENTS = (
    """
    CREATE TABLE run (
        id INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        fleet TEXT NOT NULL,
        nodectl TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE measurement (
        run INTEGER NOT NULL REFERENCES run (id),
        identity TEXT NOT NULL,
        probe TEXT NOT NULL,
        hosts TEXT NOT NULL,
        direction TEXT NOT NULL,
        value REAL NOT NULL,
        unit TEXT NOT NULL,
        expected REAL,
        spread REAL,
        conditions TEXT NOT NULL
    )
    """,
    "CREATE INDEX measurement_of_a_run ON measurement (run)",
    "CREATE INDEX measurement_over_time ON measurement (identity, run)",
    "CREATE INDEX run_over_time ON run (fleet, time)",
)

_TRIALS = (
    """
    CREATE TABLE trial (
        id INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        fleet TEXT NOT NULL,
        nodectl TEXT NOT NULL,
        profile TEXT NOT NULL,
        baseline TEXT NOT NULL,
        verdict TEXT NOT NULL,
        document TEXT NOT NULL
    )
    """,
    "CREATE INDEX trial_over_time ON trial (fleet, time)",
)

# MIGRATIONS[n] makes version n + 1 of version n
MIGRATIONS: tuple[tuple[str, ...], ...] = (_MEASUREMENTS, _TRIALS)
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables that are there; 0 for none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, upto: int = VERSION) -> None:
    """Bring the tables up to `upto`, all steps or none; whoever waited for another nodectl finds it done."""
    with _transaction(connection):
        for version in range(version_of(connection), upto):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(upto, version_of(connection))}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


FILE = "history.sqlite"
_WAIT_S = 30.0
_JOINED = "FROM measurement m JOIN run r ON r.id = m.run"
_COLUMNS = "m.probe, m.hosts, m.value, m.unit, m.direction, m.expected, m.spread, m.conditions"


class HistoryError(NodectlError):
    """The history cannot be read or written; nothing of it has been changed."""


@dataclass(frozen=True, slots=True)
class Past:
    """A measurement as it was kept, with the run's number and time (seconds since 1970)."""

    run: int
    time: float
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Point:
    """A value as it was kept, without its conditions; `key` is its identity's."""

    run: int
    time: float
    key: str
    value: float


class History:
    """Measurements and trials of fleets; a fleet is named by its inventory, for hosts of two may share their names.

    What was kept later is later: a clock that was once ahead does not make its runs the latest for good.
    """

    def __init__(self, path: Path, fleet: str, *, wait_s: float = _WAIT_S) -> None:
        self.path = path
        self.fleet = fleet
        with self._errors():
            _create_private(path)
            # a rollback journal and no write-ahead log: home folders lie on NFS, Lustre and GPFS, where a log cannot be
            self._connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        try:
            with self._errors():
                self._refuse_foreign()
                if version_of(self._connection) < VERSION:
                    migrate(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the history cannot be used any more."""
        self._connection.close()

    def add(self, measurements: Sequence[Measurement], when: float | None = None) -> int:
        """Keep a run's measurements, all or none; the run's number."""
        with self._errors(), _transaction(self._connection):
            now = time.time() if when is None else when
            cursor = self._connection.execute(
                "INSERT INTO run (time, fleet, nodectl) VALUES (?, ?, ?)", (now, self.fleet, __version__)
            )
            run = int(cursor.lastrowid or 0)
            self._connection.executemany(
                "INSERT INTO measurement (run, identity, probe, hosts, direction, value, unit, expected, spread,"
                " conditions) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_row(run, measurement) for measurement in measurements],
            )
        return run

    def last(self, like: Iterable[Measurement], *, upto: float, before_run: int | None = None) -> dict[str, Past]:
        """Identity → the latest measurement of the same thing until then and before that run, where there is one."""
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
        """The fleet's measurements as they were kept: of some probes, since a moment, or of one run."""
        wanted = f" AND m.probe IN ({_marks(probes)})" if probes else ""
        of_run = "" if run is None else " AND m.run = ?"
        return self._past(
            f" WHERE r.fleet = ? AND r.time >= ?{wanted}{of_run} ORDER BY m.run, m.rowid",
            (self.fleet, since, *probes, *(() if run is None else (run,))),
        )

    def points(self, probes: Sequence[str], runs: int) -> list[Point]:
        """The values of these probes in the fleet's last so many runs of them, in the order in which they were kept."""
        rows = self._rows(
            f"SELECT m.run, r.time, m.identity, m.value {_JOINED}"  # noqa: S608
            f" WHERE m.probe IN ({_marks(probes)}) AND m.run IN (SELECT id FROM run WHERE fleet = ? AND EXISTS"
            f" (SELECT 1 FROM measurement WHERE run = id AND probe IN ({_marks(probes)})) ORDER BY id DESC LIMIT ?)"
            " ORDER BY m.run, m.rowid",
            (*probes, self.fleet, *probes, runs),
        )
        with self._errors():
            for key in {row[2] for row in rows}:
                Identity.of_key(key)
            return [Point(int(run), _moment(when), key, _number(value)) for run, when, key, value in rows]

    def probes(self) -> list[str]:
        """The probes of which the fleet has measurements."""
        rows = self._rows(f"SELECT DISTINCT m.probe {_JOINED} WHERE r.fleet = ? ORDER BY 1", (self.fleet,))
        return [str(row[0]) for row in rows]

    def runs(self) -> list[tuple[int, float, str, int]]:
        """Number, time, probes and count of measurements of the fleet's runs, the latest first."""
        rows = self._rows(
            "SELECT r.id, r.time, group_concat(DISTINCT m.probe), count(m.run) FROM run r"
            " LEFT JOIN measurement m ON m.run = r.id WHERE r.fleet = ?"
            " GROUP BY r.id ORDER BY r.id DESC",
            (self.fleet,),
        )
        with self._errors():
            return [(run, _moment(when), probes or "", count) for run, when, probes, count in rows]

    def add_trial(self, summary: Summary, baseline: str, verdicts: Sequence[Verdict], when: float | None = None) -> int:
        """Keep what a trial said; its number."""
        document = json.dumps([asdict(verdict) for verdict in verdicts])
        now = time.time() if when is None else when
        with self._errors(), _transaction(self._connection):
            cursor = self._connection.execute(
                "INSERT INTO trial (time, fleet, nodectl, profile, baseline, verdict, document)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (now, self.fleet, __version__, summary.profile, baseline, str(summary.verdict), document),
            )
        return int(cursor.lastrowid or 0)

    def trials(self) -> list[Mapping[str, Any]]:
        """The fleet's trials, the latest first: id, time, profile, baseline, verdict, trials."""
        names = ("id", "time", "profile", "baseline", "verdict")
        rows = self._rows(
            "SELECT id, time, profile, baseline, verdict, document FROM trial WHERE fleet = ?"
            " ORDER BY time DESC, id DESC",
            (self.fleet,),
        )
        with self._errors():
            return [{**dict(zip(names, row[:5], strict=True)), "trials": json.loads(row[5])} for row in rows]

    def _rows(self, query: str, arguments: Sequence[object]) -> list[Any]:
        with self._errors():
            return self._connection.execute(query, arguments).fetchall()

    def _past(self, condition: str, arguments: Sequence[object]) -> list[Past]:
        rows = self._rows(f"SELECT m.run, r.time, {_COLUMNS} {_JOINED}{condition}", arguments)
        with self._errors():
            return [_past(row) for row in rows]

    def _refuse_foreign(self) -> None:
        version = version_of(self._connection)
        owner = self._connection.execute("PRAGMA application_id").fetchone()[0]
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if owner != APPLICATION_ID and (owner or version or tables):
            raise HistoryError(f"{self.path} is a database of another program", "move it away; nodectl makes its own")
        if version > VERSION:
            raise HistoryError(
                f"{self.path} was written by a newer nodectl: its tables are of version {version}, known are {VERSION}",
                "use the newer nodectl, or another XDG_STATE_HOME for this one",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's and the system's errors as ours, each with what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if _TABLES_AMISS.search(str(error)):
                raise self._damaged(error) from error
            if "locked" in str(error) or "busy" in str(error):
                remedy = "another nodectl is writing; try again"
            else:
                remedy = f"is the disk full, and may you write {self.path.parent}?"
            raise HistoryError(f"{self.path}: {error}", remedy) from error
        except (sqlite3.Error, ValueError) as error:
            raise self._damaged(error) from error
        except OSError as error:
            raise HistoryError(f"{self.path}: {error.strerror or error}", "may you write there?") from error

    def _damaged(self, error: Exception) -> HistoryError:
        return HistoryError(
            f"{self.path} is damaged: {error}",
            f"move it away (mv {self.path} {self.path}.damaged): nodectl begins a new one, and `sqlite3 … .recover`"
            " reads what is left of the old",
        )


# larger than any run's number
_MOST = 2**62
# the first second of the year 9999: no clock is beyond it, and localtime knows all before
_LATEST_S = 253_370_764_800.0
_TABLES_AMISS = re.compile("no such (table|column)|already exists")


def _create_private(path: Path) -> None:
    """Only its owner reads it: it names hosts; the journal beside it gets the same mode from SQLite."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return
    # a link to /dev/null is how some keep no history: the device is everybody's
    if path.is_file() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


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
    names, known = json.loads(hosts), json.loads(conditions)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names) and isinstance(known, dict)):
        raise ValueError(f"run {run}: {hosts!r} are no hosts, or {conditions[:40]!r} no conditions")
    measurement = Measurement(
        str(probe),
        tuple(names),
        _number(value),
        str(unit),
        str(direction),
        None if expected is None else _number(expected),
        None if spread is None else _number(spread),
        known,
    )
    return Past(int(run), _moment(when), measurement)


def _number(value: object) -> float:
    """SQLite keeps anything in any column."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return value


def _moment(value: object) -> float:
    when = _number(value)
    if abs(when) >= _LATEST_S:
        raise ValueError(f"{value!r} is no time")
    return when


def iso(seconds: float) -> str:
    """Seconds since 1970 as local time with its offset: `2026-11-20T14:30:05+0100`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
