"""The verdict over all hosts: state, the failing host and rank first, and which host is the lost one."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodectl.jobs import listing
from nodectl.jobs.listing import Report, merge
from nodectl.jobs.nodes import Answers, rows_of
from nodectl.jobs.rows import JobRow
from nodectl.model.host import Host
from nodectl.model.job import Failure, Job, JobState
from nodectl.payload.common.frames import encode
from nodectl.report.jobs import job_document, job_text

HOSTS = ("gpu01", "gpu02", "gpu03")


def failure(kind: Any, time_s: Any, rank: Any = None, message: Any = "", status: Any = None, **more: Any) -> Any:
    return {"kind": kind, "message": message, "rank": rank, "exit_status": status, "time": time_s, **more}


def lost(rank: Any, time_s: Any) -> Any:
    return failure("host_lost", time_s, message=f"{HOSTS[rank]}: no heartbeat for 8 s", lost=rank)


def report(
    rank: int,
    state: str,
    failures: Sequence[Mapping[str, Any]] = (),
    *,
    final: bool = True,
    alive: bool = False,
    heard: Mapping[str, Any] | None = None,
    created_at: float | None = None,
    ended_at: float = 20.0,
) -> Report:
    plan = {
        "id": "20261121-040000-ab12",
        "created_at": time.time() if created_at is None else created_at,
        "operator": "me@laptop",
        "script": "train.py",
        "args": ["--epochs", "3"],
        "hosts": [{"name": name} for name in HOSTS],
        "nproc_per_node": 2,
    }
    inner = {"state": state, "final": final, "failures": list(failures), "heard": heard or {}, "ended_at": ended_at}
    return Report(HOSTS[rank], {"plan": plan, "rank": rank, "alive": alive, "processes": 0, "state": inner})


def cause(job: Job) -> Failure:
    assert job.first_failure is not None
    return job.first_failure


@pytest.mark.parametrize("job_id", ["../../.ssh/x", "-rf", "", "A", "20261121-050000-ab12", None])
def test_a_job_whose_id_is_none_or_anothers_is_not_listed(monkeypatch: pytest.MonkeyPatch, job_id: str | None) -> None:
    """A node's word: with its plan it would name a job on the other hosts, or a folder here."""
    row = {**report(0, "running").document, "id": "20261121-040000-ab12", "problem": ""}
    forged = {**row, "plan": {**row["plan"], "id": job_id}} if job_id else {**row, "id": job_id}
    sane, wrong = rows_of("gpu01", encode([forged]).decode(), JobRow)
    answers = Answers({"gpu01": sane, "gpu02": (row,)}, unreadable={"gpu01": wrong})
    monkeypatch.setattr(listing, "ask", lambda *_, **__: answers)
    found = listing.read_jobs(None, [Host(name, name) for name in HOSTS], 1)  # type: ignore[arg-type]
    assert [job.id for job in found.jobs] == ["20261121-040000-ab12"]
    assert found.unreachable["gpu01"].startswith("sent an unreadable answer: ") and "gpu02" not in found.unreachable


ECHO = failure("communication", 1.0, 0, "Connection reset by peer", 1)
HEARD = {"1": failure("exception", 1.0, 2, "ValueError: x", 1)}
MISSED = [report(0, "failed", [lost(1, 9.0)]), report(2, "failed", [lost(1, 9.1)])]


@pytest.mark.parametrize(
    ("reports", "unreachable", "kind", "says"),
    [
        ([*MISSED, report(1, "failed", [lost(0, 8.9), lost(2, 8.9)])], {}, "host_lost", "2 of the other hosts"),
        (MISSED, {"gpu02": "no answer"}, "host_lost", "2 of the other hosts"),
        ([report(0, "failed"), report(1, "failed", [lost(0, 9.0), lost(2, 9.0)]), report(2, "failed")], {},
         "host_lost", "came to it from gpu[01,03], which heard it: what is sent to it does not arrive"),
        # the deaf one cannot be asked, and what it lost can
        ([report(rank, "failed", heard={"1": lost(0, 9.0)}) for rank in (0, 2)], {"gpu02": "timeout"},
         "host_lost", "does not arrive"),
        # the errors that a lost host caused came before it was missed
        ([report(0, "failed", [ECHO, lost(1, 9.0)]), MISSED[1]], {"gpu02": "timeout"}, "host_lost", ""),
        ([report(0, "failed", [lost(1, 9.0)]), report(1, "failed", [lost(0, 9.0)]), report(2, "failed")], {},
         "link", "gpu01 and gpu02 lost each other"),
        ([*MISSED, report(1, "running", final=False, alive=False)], {}, "supervisor", ""),
        # only the others heard of it
        ([report(rank, "failed", heard=HEARD) for rank in (0, 2)], {"gpu02": "no answer"}, "exception", "ValueError"),
    ],
)  # fmt: skip
def test_the_second_host_is_named_where_the_failure_lay_there(
    reports: list[Report], unreachable: dict[str, str], kind: str, says: str
) -> None:
    job = merge(reports, unreachable)
    assert (cause(job).host, cause(job).kind) == ("gpu02", kind)
    assert says in cause(job).message and (job.state, job.exit_status) == (JobState.FAILED, 1)


@pytest.mark.parametrize(("attempt", "kind"), [(1, "supervisor"), (2, "host_lost")])
def test_a_past_attempt_s_silent_host_tells_its_own_end_of_that_attempt(attempt: int, kind: str) -> None:
    """Its guard knows what the others could only miss."""
    silent = report(1, "failed", [failure("supervisor", 9.0, message="killed")])
    silent.document["state"]["attempt"] = attempt
    past = {"number": 1, "hosts": list(HOSTS[:2]), "begun_at": 1.0, "ended_at": 10.0}
    cause_then = {**failure("host_lost", 9.5, message="no heartbeat for 5 s"), "host": HOSTS[1]}
    others = [report(0, "finished"), report(2, "finished")]
    for other in others:
        other.document["state"].update(attempt=2, roster=[0, 2], attempts=[{**past, "cause": cause_then}])
    (told,) = merge([others[0], silent, others[1]], {}).past
    assert told.cause is not None
    assert (told.cause.kind, told.cause.host) == (kind, HOSTS[1])


def test_stopped_by_the_operator_though_ranks_complained() -> None:
    job = merge(
        [
            report(0, "stopped"),
            report(1, "failed", [failure("communication", 1.0, 2, "reset", 1)]),
            report(2, "stopped"),
        ],
        {},
    )
    assert (job.state, job.exit_status, job.first_failure) == (JobState.STOPPED, None, None)


@pytest.mark.parametrize(
    ("states", "unreachable", "expected"),
    [
        ([("running", False), ("running", False), ("running", False)], {}, JobState.RUNNING),
        ([("waiting", False), ("running", False), ("waiting", False)], {}, JobState.STARTING),
        ([("ending", False), ("failed", True), ("running", False)], {}, JobState.ENDING),
        ([("finished", True), ("finished", True)], {"gpu03": "no answer"}, JobState.UNKNOWN),
    ],
)
def test_states(states: Any, unreachable: Any, expected: Any) -> None:
    reports = [report(rank, state, final=final, alive=True) for rank, (state, final) in enumerate(states)]
    assert merge(reports, unreachable).state is expected


@pytest.mark.parametrize(
    ("others", "expected", "part"),
    [
        ([("failed", True), ("failed", True)], JobState.FAILED, "cut off"),
        (
            [("resting", False), ("failed", True)],
            JobState.RESTARTING,
            "resting",
        ),  # the first host may start another attempt
    ],
)
def test_a_host_that_was_not_told_of_the_end_keeps_no_job_from_ending(others: Any, expected: Any, part: str) -> None:
    because = [failure("signal", 1.0, 0, "killed by signal 9 (SIGKILL)", 137)]
    reports = [report(rank, state, because, final=final, alive=not final) for rank, (state, final) in enumerate(others)]
    job = merge([*reports, report(2, "resting", final=False, alive=True)], {})
    assert (job.state, job.parts[2].state) == (expected, part)
    shown = job_text(job)
    assert ("cut off   gpu03: it missed the end of the job" in shown) is (part == "cut off")


def test_what_preflight_found_and_was_let_pass_is_shown() -> None:
    passed = report(0, "running", final=False, alive=True)
    line = "launch_clock: failed on gpu02: 6.0 s ahead"
    passed.document["plan"]["skipped"] = [line]
    job = merge([passed], {})
    assert f"\nskipped   {line}\n" in job_text(job) and job_document(job)["skipped"] == [line]


def without_plan(host: str, state: str, rank: int | None, problem: str = "its plan.json is empty") -> Report:
    row = {"id": "20261121-040000-ab12", "plan": None, "rank": rank, "alive": False, "processes": 0, "problem": problem}
    return Report(host, {**row, "state": {"state": state, "final": True}})


@pytest.mark.parametrize("rank", [1, None])
def test_a_host_that_cannot_read_its_plan_has_its_place_from_the_others(rank: int | None) -> None:
    job = merge([report(0, "finished"), without_plan("gpu02", "failed", rank), report(2, "finished")], {})
    assert [(part.host, part.state) for part in job.parts] == [
        ("gpu01", "finished"), ("gpu02", "failed"), ("gpu03", "finished")]  # fmt: skip
    assert (job.parts[1].problem, job.script, job.state) == ("its plan.json is empty", "train.py", JobState.FAILED)


def test_what_an_upload_left_is_a_job_that_can_be_cleaned() -> None:
    job = merge([without_plan("gpu02", "partial", None, ""), without_plan("gpu01", "partial", None, "")], {})
    assert (job.hosts, job.state, job.state.ended) == (("gpu01", "gpu02"), JobState.STOPPED, True)
    assert job.created_at == 1795233600.0
