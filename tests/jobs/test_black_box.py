"""What is made of takings of the black box: one of each kind, and whom a cause that names nobody blames by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodectl.jobs import black_box
from nodectl.jobs.black_box import _newest_together, _taking, explained, of_its_end, telling
from nodectl.model.host import Host
from nodectl.model.job import Failure, Job, JobState
from nodectl.model.recording import Recording
from tests.facts.recorded import recording

_TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce"


def row(rank: int, stack: list[str], at: float = 100.0, why: str = "no step after 7 for 21 s", **more: Any) -> Any:
    ranks = [{"rank": rank, "state": "S", "stack": stack, "moved": False, "cpu": 0.0, "output_age_s": 21.0}]
    report = {"ranks": ranks, "network": {}, "gpus": [], "ras": "", "flight": {}, "xids": [], "host": {}}
    return {**report, "at": at, "attempt": 1, "kind": "suspicion", "why": why, **more}


HUNG = {
    "node01": row(0, [_TORCH, "train.py:9 work"]),
    "node02": row(1, ["train.py:5 load"], why="another host tells it"),
}


def job(category: str, rank: int | None = None, state: JobState = JobState.FAILED) -> Job:
    cause = Failure("node01", rank, "exit", "it is over", category=category) if category else None
    return Job("j", state, ("node01", "node02"), "train.py", (), 1, (), first_failure=cause)


@pytest.mark.parametrize(
    ("cause", "blamed"),
    [
        (job("time_limit"), ("node02", 1)),
        (job("communication", rank=0), ("node01", 0)),
        (job("host_lost"), ("node01", None)),
        (job("script_error"), ("node01", None)),
    ],
)
def test_a_cause_that_names_nobody_blames_the_rank_that_was_missed(cause: Job, blamed: tuple[str, int | None]) -> None:
    taking = _taking(HUNG, {})
    assert (taking.why, taking.look.missing) == ("no step after 7 for 21 s", (1,))
    found = explained(cause, [taking]).first_failure
    assert found is not None
    assert (found.host, found.rank) == blamed
    assert any("train.py:5 load" in line for line in found.evidence) == (found.category != "script_error")
    assert ("train.py:5 load" in found.message) == (found.category in ("time_limit", "host_lost"))


def test_people_read_of_a_stand_still_and_of_a_cause_that_explains_nothing() -> None:
    hung, end = _taking(HUNG, {}), _taking({"node01": row(0, ["train.py:9 work"], kind="end")}, {})
    assert telling(job("script_error"), [end]) == ()
    assert telling(job("host_lost"), [end]) == (end,)
    assert telling(job("", state=JobState.STOPPED), [hung, end]) == (hung,)
    assert telling(job("", state=JobState.FINISHED), [hung]) == ()


def test_a_host_counts_with_its_newest_taking_of_the_same_moment() -> None:
    rows = [("node01", row(0, [], at=100.0)), ("node01", row(0, [], at=400.0)), ("node02", row(1, [], at=101.0))]
    assert {host: item["at"] for host, item in _newest_together(rows).items()} == {"node01": 400.0}


def test_full_disks_and_blocked_processes_are_evidence() -> None:
    host = {"full": ["/scratch"], "blocked": ["D 7 nfs_wait cat"]}
    evidence = _taking({"node01": row(0, ["train.py:9 work"], host=host)}, {}).look.evidence
    for words in ("/scratch is full", "nfs_wait"):
        assert any(line.startswith("node01, ") and words in line for line in evidence), (words, evidence)


STOPS = "booted 1000000\njournal kept\nend 999900.5\nwtmp reboot\nwtmp reboot\njob 999890 j\n"


@pytest.mark.parametrize(
    ("said", "words", "remedy"),
    [
        (STOPS, ("without a shutdown", "the journal simply stops", "power supply"), "power limits"),
        (STOPS + "dump 999990 /var/crash/1\n", ("panic", "/var/crash/1"), "crash record"),
        ("booted 1000000\njournal kept\nend 999900.5\nwtmp reboot\nwtmp shutdown\n", ("in good order",), "health"),
        ("booted 1000000\njournal volatile\n", (), "health"),
        (3, (), "health"),
    ],
)
def test_a_job_that_a_reboot_broke_off_says_how_the_node_ended(
    monkeypatch: pytest.MonkeyPatch, said: str | int, words: tuple[str, ...], remedy: str
) -> None:
    def answer(*_: object) -> Recording:
        return replace(recording(last_boot=said, bmc_log=127, dmesg="<6>[    0.0] Linux\n"), time=1_000_500.0)

    monkeypatch.setattr(black_box, "collect", answer)
    cause = Failure("node01", None, "rebooted", "it was rebooted", remedy="see `nodectl health -l node01`")
    broken = replace(job(""), first_failure=cause)
    found = of_its_end(None, [Host("node01", "node01")], broken).first_failure  # type: ignore[arg-type]
    assert found is not None and remedy in found.remedy
    assert len(found.evidence) == bool(words) and all(word in found.evidence[0] for word in words)
