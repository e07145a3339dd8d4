"""Output in files of the ranks: each line once with its rank, in the order of arrival, bounded on the node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.follow import Dropped, Start, follow
from nodectl.model.host import Host
from nodectl.payload.jobs import outputs
from nodectl.payload.jobs.folder import JobFolder
from tests.jobs.test_follow import JOB, Local, wrote

A = Host("a", "a")


class Written:
    """A job on host a whose ranks write into files of their own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, only: bool = True) -> None:
        self.local = Local(root)
        self.folder = wrote(self.local, "a", b"").parent
        monkeypatch.setenv("XDG_STATE_HOME", str(root / "a"))
        self.job = JobFolder(JOB)
        (self.folder / "ranks").mkdir()
        if only:
            (self.folder / "ranks" / "only-copy").touch()

    def path(self, rank: int | None, stream: str = "stdout") -> Path:
        if rank is None:
            return self.folder / "output.log"
        return self.folder / "ranks" / "run_x" / "attempt_0" / str(rank) / f"{stream}.log"

    def write(self, rank: int | None, data: bytes, stream: str = "stdout") -> None:
        path = self.path(rank, stream)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def events(self, start: Start | None = None) -> list[Any]:
        return list(follow(self.local, [A], JOB, start=start, once=True))

    def lines(self, start: Start | None = None) -> list[tuple[int | None, str]]:
        return whole(self.events(start))


def whole(events: Iterable[Any]) -> list[tuple[int | None, str]]:
    """Ranks and lines."""
    return [(event.local_rank, event.text) for event in events]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(tmp_path, monkeypatch)


def test_each_line_stands_once_with_its_rank(written: Written) -> None:
    written.write(None, b"agent\n")
    written.write(0, b"out 0\n")
    written.write(0, b"err 0\n", "stderr")
    written.write(11, b"out 11\nunfinished")
    assert sorted(written.lines(), key=str) == sorted(
        [(None, "agent"), (0, "out 0"), (0, "err 0"), (11, "out 11"), (11, "unfinished")], key=str
    )
    assert written.lines(Start(local_rank=11)) == [(11, "out 11"), (11, "unfinished")]


def test_lines_come_in_the_order_in_which_they_were_written(written: Written) -> None:
    keeper = outputs.Keeper(written.job, 1024)
    expected: list[tuple[int | None, str]] = []
    for number in range(40):
        rank = (1, 0, None)[number % 3]
        written.write(rank, b"line %d\n" % number)
        expected.append((rank, f"line {number}"))
        keeper.tend()
    written.write(0, b"after the last look\n")
    assert written.lines() == [*expected, (0, "after the last look")]
    assert written.lines(Start(tail=7)) == [*expected[-6:], (0, "after the last look")]
    assert written.lines(Start(tail=0)) == []


def test_the_last_lines_are_of_all_ranks_where_nobody_kept_an_account(written: Written) -> None:
    for rank in (None, 0, 1):
        written.write(rank, b"".join(b"%d\n" % number for number in range(100_000)))
    shown = written.lines(Start(tail=6))
    assert sorted(shown, key=str) == sorted(
        [(rank, text) for rank in (None, 0, 1) for text in ("99998", "99999")], key=str
    )


def test_a_beginning_in_time(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = outputs.Keeper(written.job, 1024)
    now = time.time()
    for minutes in (60, 30, 10):
        written.write(0, b"%d minutes ago\nits second line\n" % minutes)
        written.write(None, b"agent %d" % minutes)  # in the middle of a line at the moment of the look
        monkeypatch.setattr("nodectl.payload.jobs.outputs.time.time", lambda minutes=minutes: now - 60 * minutes)
        keeper.tend()
        monkeypatch.undo()
        monkeypatch.setenv("XDG_STATE_HOME", str(written.local.root / "a"))
        written.write(None, b" goes on\n")
    shown = written.lines(Start(since_s=20 * 60.0))
    assert shown == [(0, "10 minutes ago"), (0, "its second line"), (None, "agent 10 goes on")]
    assert len(written.lines(Start(since_s=7200.0))) == 9
    assert written.lines(Start(since_s=0.0)) == []


def test_a_very_long_line_is_cut_and_keeps_nobody_waiting(written: Written) -> None:
    written.write(0, b"0" * 5_000_000 + b"\n")
    written.write(3, b"short\n")
    shown = written.lines()
    assert sum(len(text) for rank, text in shown if rank == 0) == 5_000_000
    assert shown.index((3, "short")) < len(shown) - 1


def test_output_takes_no_more_space_than_its_limit_and_what_was_dropped_is_said(written: Written) -> None:
    keeper = outputs.Keeper(written.job, 4)
    block = b"".join(b"%06d %s\n" % (number, b"x" * 120) for number in range(8192))
    for _ in range(8):
        written.write(0, block)
        written.write(1, b"a quiet rank\n")
        keeper.tend()
        taken = sum(path.stat().st_blocks * 512 for path in written.folder.rglob("*.log"))
        assert taken <= 4 << 20, taken
    events = written.events()
    (dropped,) = [event for event in events if isinstance(event, Dropped)]
    shown = whole(event for event in events if not isinstance(event, Dropped))
    kept = [text for rank, text in shown if rank == 0]
    assert dropped.local_rank == 0
    assert dropped.size_bytes + sum(len(text) + 1 for text in kept) == 8 * len(block)
    assert all(len(text) == 127 for text in kept) and kept[-1].startswith("008191")
    assert [text for rank, text in shown if rank == 1] == ["a quiet rank"] * 8
    assert [text for _, text in written.lines(Start(tail=3))][-1].startswith(("008191", "a quiet"))


def test_a_reader_that_is_overtaken_goes_on_with_a_whole_line(written: Written) -> None:
    line = b"x" * 99 + b"\n"
    written.write(0, line * 40_000)
    written.write(0, b"last\n")
    keeper = outputs.Keeper(written.job, 1)
    keeper.tend()
    (written.folder / "ranks" / "run_x" / "attempt_0" / "0" / "stdout.log").touch()
    events = written.events()
    assert isinstance(events[0], Dropped)
    assert {text for _, text in whole(events[1:])} == {"x" * 99, "last"}


def test_files_that_deepspeeds_launcher_writes_are_of_their_ranks(tmp_path: Path, monkeypatch: Any) -> None:
    written = Written(tmp_path, monkeypatch)
    folder = written.folder / "ranks" / "deepspeed_from_8"
    folder.mkdir()
    for rank in (8, 9):
        (folder / f"20261123080000_rank{rank}.log").write_text(f"I am {rank}\n")
    assert sorted(written.lines(), key=str) == [(0, "I am 8"), (1, "I am 9")]
    assert outputs.own_files(str(written.folder / "ranks"), 1) == [str(folder / "20261123080000_rank9.log")]
