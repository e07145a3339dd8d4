"""The history's tables, version by version: a migration is never changed once it has been in a release."""

from __future__ import annotations

import sqlite3

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
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(version_of(connection), upto):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(upto, version_of(connection))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
