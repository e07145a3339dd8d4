"""The operator's one SQLite file: created, opened, and refused if it is not ours to read."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from nodectl.errors import NodectlError

# "ndct", so that a database of another program is not taken for ours
APPLICATION_ID = 0x6E646374

# earlier development versions had tables of versions 1 to 3
VERSION = 4


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the tables that are there; 0 for none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create(connection: sqlite3.Connection) -> None:
    """Create the tables, all or none; if another nodectl has created them meanwhile, leave them alone."""
    schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    with _transaction(connection):
        if version_of(connection) != 0:
            return
        for statement in filter(None, map(str.strip, schema.split(";"))):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


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
WAIT_S = 30.0


class HistoryError(NodectlError):
    """The history cannot be read or written; nothing of it has been changed."""


class Database:
    """The file, open, and the name of a fleet: its inventory, for hosts of two fleets may share their names.

    What was kept later is later: a clock that was once ahead does not make its rows the latest for good.
    """

    def __init__(self, path: Path, fleet: str, *, wait_s: float = WAIT_S) -> None:
        self.path = path
        self.fleet = fleet
        with self.errors():
            _create_private(path)
            # a rollback journal and no write-ahead log: home folders lie on NFS, Lustre and GPFS, where a log cannot be
            self.connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        try:
            with self.errors():
                self._refuse_foreign()
                create(self.connection)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; it cannot be used any more."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep what the block writes as a whole or not at all; HistoryError for what SQLite says."""
        with self.errors(), _transaction(self.connection):
            yield

    @contextmanager
    def errors(self) -> Iterator[None]:
        """SQLite's and the system's errors as HistoryError, each with what to do."""
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

    def rows(self, query: str, arguments: Sequence[object]) -> list[Any]:
        """Return what the query finds; HistoryError if it cannot be asked."""
        with self.errors():
            return self.connection.execute(query, arguments).fetchall()

    def _refuse_foreign(self) -> None:
        self.connection.execute("BEGIN")  # as of one moment: another nodectl may be making the tables
        version = version_of(self.connection)
        owner = self.connection.execute("PRAGMA application_id").fetchone()[0]
        tables = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self.connection.execute("COMMIT")
        if owner != APPLICATION_ID and (owner or version or tables):
            raise HistoryError(f"{self.path} is a database of another program", "move it away; nodectl makes its own")
        if version not in (0, VERSION):
            raise HistoryError(
                f"{self.path} was written by another version of nodectl (tables {version}, not {VERSION})",
                f"use that nodectl, or move it away (mv {self.path} {self.path}.old): this one creates a new one",
            )

    def _damaged(self, error: Exception) -> HistoryError:
        return HistoryError(
            f"{self.path} is damaged: {error}",
            f"move it away (mv {self.path} {self.path}.damaged): nodectl begins a new one, and `sqlite3 … .recover`"
            " reads what is left of the old",
        )


_TABLES_AMISS = re.compile("no such (table|column)|already exists")


def _create_private(path: Path) -> None:
    """Create the file readable by its owner only, since it names hosts; SQLite gives its journal the same mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return
    # a link to /dev/null is how some keep no history: the device is everybody's
    if path.is_file() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def iso(seconds: float) -> str:
    """Return the seconds since 1970 as local time with its offset: `2026-11-20T14:30:05+0100`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
