"""The black box on a node: when a pause is too long, what a taking leaves on a full disk, and after a kill."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.payload.jobs import black_box
from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.jobs.rhythm import Rhythm
from tests.payload.fleet import Fleet, answer

# steps, then nothing any more
_HANG = """
import os, signal, time
def load():
    time.sleep(1000)
for step in range(1, 5):
    os.write(1, b"step %d/100 loss 0.5\\n" % step)
    time.sleep(2.2)
os.write(1, b"hangs\\n")
load()
"""


def suspected(pauses: list[float], rest_s: float) -> str:
    """What a rhythm says `rest_s` after marks that came with these pauses."""
    now_s = 0.0
    rhythm = Rhythm(now_s)
    for mark, pause_s in enumerate([0.0, *pauses]):
        now_s += pause_s
        rhythm.note(mark, now_s)
    return rhythm.suspicion(now_s + rest_s)


@pytest.mark.parametrize(
    ("pauses", "quiet_s", "hung_s"),
    [
        ([0.5, 0.5, 0.5], 19, 21),
        ([2, 30, 2], 119, 121),
        ([10, 200, 10], 299, 301),
        ([10, 400, 10], 599, 601),
        ([], 59, 61),
    ],
)
def test_a_pause_is_too_long_by_what_went_before(pauses: list[float], quiet_s: float, hung_s: float) -> None:
    assert suspected(pauses, quiet_s) == ""
    assert suspected(pauses, hung_s).startswith(f"for {hung_s} s")


def test_it_is_said_once_and_a_false_alarm_makes_the_next_take_longer() -> None:
    rhythm = Rhythm(0.0)
    for second in range(10):
        rhythm.note(second, float(second))
    assert (bool(rhythm.suspicion(30)), rhythm.suspicion(31)) == (True, "")
    rhythm.note(10, 32.0)
    assert rhythm.suspicion(32 + 45) == ""
    assert rhythm.suspicion(32 + 200) != ""


def test_a_job_that_goes_on_has_passed_and_what_a_dying_one_writes_is_no_progress() -> None:
    doubts = black_box.Doubts()
    doubts.taken_s = 100.0
    stood_s = {110.0: 31.0, 120.0: 1.0, 170.0: 1.0, 181.0: 1.0, 182.0: 1.0}
    assert [doubts.has_passed(stood_s[now_s], now_s) for now_s in stood_s] == [False, False, False, True, False]


# only the first host's ranks write
_ONE_WRITES = """
import os, time
for step in range(1, 1000):
    if int(os.environ["RANK"]) < 2:
        os.write(1, b"step %d/1000 loss 0.5\\n" % step)
    time.sleep(1)
"""


@pytest.mark.slow
def test_hosts_that_never_write_do_not_take_a_job_for_hung_that_another_says_goes_on(fleet: Fleet) -> None:
    job_id = fleet.launch(_ONE_WRITES)
    time.sleep(80)  # they know no rhythm, and wait for 60 s
    assert [takings(fleet, rank, job_id) for rank in range(2)] == [[], []]


def takings(fleet: Fleet, rank: int, job_id: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = answer(fleet.ctl(rank, "black_box", job_id))
    return rows


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 2)
    yield made
    made.close()


def test_a_hanging_job_is_taken_by_itself_on_all_hosts_and_survives_its_end(fleet: Fleet) -> None:
    job_id = fleet.launch(_HANG, start=None)
    fleet.wait(lambda: all(takings(fleet, rank, job_id) for rank in range(2)), 90)
    fleet.wait(lambda: all("network" in row and row["network"] for row in takings(fleet, 0, job_id)), 30)
    for rank in range(2):
        fleet.ctl(rank, "stop", job_id)
    for rank in range(2):
        (row,) = takings(fleet, rank, job_id)
        assert (row["kind"], row["attempt"], abs(time.time() - float(str(row["at"]))) < 120) == ("suspicion", 1, True)
        assert [item["rank"] for item in row["ranks"]] == [2 * rank, 2 * rank + 1]  # type: ignore[attr-defined]
        assert "MemTotal" in str(row["host"])
    said = [str(row["why"]) for rank in range(2) for row in takings(fleet, rank, job_id)]
    assert any("no step after 4 for 2" in why for why in said), said


def test_why_stands_in_no_command_line_whatever_an_exception_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said = "ValueError: key=s3cret\0\udcff " + "x" * 100_000
    job = JobFolder("20260101-000000-0001")
    pid = black_box.start(job, 1, "end", said)
    assert b"s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    os.waitpid(pid, 0)
    assert not Path(job.path).exists()  # `jobs clean` removed it before
