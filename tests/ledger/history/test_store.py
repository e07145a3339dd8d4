"""The history's file: kept, shared between processes, and refused where it is not ours to read."""

import multiprocessing
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.ledger.history.database import VERSION, HistoryError
from nodectl.ledger.history.store import History, identity_of
from tests.ledger.history.measured import memory, tcp


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the history lies."""
    return tmp_path / "history.sqlite"


def test_kept_whole(path: Path) -> None:
    measured = [memory("gpu01", 21.5), tcp("gpu01", "gpu02", 9.4, spread=None)]
    with History(path, "fleet") as history:
        assert history.add(measured, when=1000.0) == 1
    with History(path, "fleet") as history:
        assert [each.measurement for each in history.past()] == [
            measured[0],
            # a tuple of hosts comes back as one, lists of conditions as lists
            measured[1],
        ]
        assert [(each.run, each.time) for each in history.past(["tcp"])] == [(1, 1000.0)]
        assert history.runs() == [(1, 1000.0, "memory,tcp", 2)]
        assert history.past(since=1000.5) == []
        assert history.past(run=2) == []


def test_only_its_owner_reads_it(path: Path) -> None:
    before = os.umask(0)
    try:
        with History(path, "fleet"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with History(path, "fleet"):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_last_of_each(path: Path) -> None:
    with History(path, "fleet") as history:
        history.add([memory("gpu01", 20.0), memory("gpu02", 30.0)], when=100)
        history.add([memory("gpu01", 21.0), memory("gpu01", 5.0, kernel="copy")], when=200)
        now = history.add([memory("gpu01", 22.0)], when=300)
        like = [memory("gpu01", 0.0), memory("gpu02", 0.0), memory("gpu03", 0.0)]

        def values(**bounds: float) -> list[float]:
            found = history.last(like, **{"upto": 1e9, "before_run": now, **bounds})  # type: ignore[arg-type]
            return [found[key].measurement.value for key in (identity_of(each).key for each in like) if key in found]

        assert values() == [21.0, 30.0]
        assert values(upto=150) == [20.0, 30.0]
        assert values(upto=50) == []
        assert values(before_run=now + 1) == [22.0, 30.0]


def test_fleets_do_not_see_each_other(path: Path) -> None:
    with History(path, "one") as history:
        history.add([memory("gpu01", 20.0)])
    with History(path, "other") as history:
        assert (history.past(), history.runs()) == ([], [])
        assert history.last([memory("gpu01", 0.0)], upto=1e12) == {}


def newer(path: Path) -> None:
    with History(path, "fleet") as history:
        history.add([memory("gpu01", 1.0)])
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 3}")
    connection.close()


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


def no_database(path: Path) -> None:
    path.write_text("measurements: none\n" * 100)


def cut(path: Path) -> None:
    with History(path, "fleet") as history:
        history.add([memory("gpu01", float(n)) for n in range(200)])
    content = path.read_bytes()
    path.write_bytes(content[:5000])


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (newer, "another version of nodectl"),
        (foreign, "another program"),
        (no_database, "is damaged"),
        (cut, "is damaged"),
        (folder, "unable to open"),
    ],
)
def test_what_cannot_be_read_is_refused_and_left_alone(path: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(HistoryError) as refused, History(path, "fleet") as history:
        history.past()
    assert str(path) in refused.value.message
    assert told in refused.value.message
    assert refused.value.remedy
    assert (path.read_bytes() if path.is_file() else b"") == before


def write(path: Path, host: str, runs: int) -> None:
    """One nodectl of several: each run opens the history afresh, as commands do."""
    for number in range(runs):
        with History(path, "fleet") as history:
            run = history.add([memory(host, 1.0 + number), memory(host, 2.0, kernel="copy")])
            assert len(history.past(run=run)) == 2


def test_several_nodectl_at_once(path: Path) -> None:
    # the first of them make the file and its tables at the same moment
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(path, f"gpu{n}", 10)) for n in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(120)
    assert [each.exitcode for each in writers] == [0] * 3
    with History(path, "fleet") as history:
        assert len(history.runs()) == 30
        assert len(history.past()) == 60
        assert {run for run, *_ in history.runs()} == set(range(1, 31))


@pytest.mark.parametrize("amiss", ["DROP TABLE measurement", "PRAGMA user_version = 0"])
def test_what_is_amiss_in_the_tables_is_damage_and_no_bug_of_ours(path: Path, amiss: str) -> None:
    with History(path, "fleet") as history:
        history.add([memory("gpu01", 20.0)], when=100)
    with sqlite3.connect(path) as connection:
        connection.executescript(amiss)
    with pytest.raises(HistoryError, match="is damaged") as refused, History(path, "fleet") as history:
        history.runs()
        history.past()
    assert f"mv {path} " in refused.value.remedy
