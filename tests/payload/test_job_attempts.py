"""A job that restarts: what follows a failed attempt, as the first host decides it, and with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.listing import Report, merge
from nodectl.model.job import JobState
from nodectl.payload.jobs import heartbeat as hb
from nodectl.payload.jobs.attempts import Over, Rules, Succession
from nodectl.payload.jobs.failures import first_of_attempt
from nodectl.payload.jobs.heartbeat import Attempt, Beat
from nodectl.payload.jobs.process import descendants
from tests.payload.fleet import Fleet, processes_of

KILLED = {"kind": "signal", "message": "killed by signal 9 (SIGKILL)", "rank": 1, "exit_status": 137, "time": 1.0}
RULES = Rules(members=3, least=2, most=2, restarts=2, lease_s=8.0, grace_s=3.0)


@dataclass
class Views:
    """The first of three hosts asks what follows; `silent` are hosts that it has not heard for so long."""

    me: Beat
    others: dict[int, Beat]
    silent: dict[int, float] = field(default_factory=dict)
    rules: Rules = RULES

    def __post_init__(self) -> None:
        self.succession = Succession(self.rules)

    def ask(self, now_s: float) -> Over | Attempt | None:
        silent = {rank: self.silent.get(rank, 0.1) for rank in range(self.rules.members) if rank != self.me.rank}
        return self.succession.decide(self.me, self.others, silent, now_s)

    def after(self, seconds: float) -> Over | Attempt | None:
        """Ask now, and again after that time."""
        self.ask(100.0)
        return self.ask(100.0 + seconds)


FIRST = Attempt(1, (0, 1))


def beat(rank: int, state: str = hb.RESTING, attempt: Attempt = FIRST, **more: Any) -> Beat:
    return Beat(rank, 1, state, more.pop("failure", None), attempt, **{"fit": "", **more})


def failed(**silent: float) -> Views:
    words = {1: beat(1, failure=KILLED), 2: beat(2, hb.SPARE)}
    return Views(beat(0), words, {int(rank.removeprefix("host")): seconds for rank, seconds in silent.items()})


THIRD = Attempt(3, (0, 1))
DEAF = {1: beat(1, failure=KILLED, fit="host1 does not hear host0"), 2: beat(2, hb.SPARE)}
SECOND = Attempt(2, (2, 1))


@pytest.mark.parametrize(
    ("views", "seconds", "follows"),
    [
        (failed(), 1.9, None),
        (failed(), 2.1, FIRST._replace(number=2)),
        (failed(host1=9.0), 13.9, None),
        (failed(host1=9.0), 14.1, Attempt(2, (0, 2))),
        (Views(beat(0), {1: beat(1, hb.ENDING), 2: beat(2, hb.SPARE)}), 60.0, None),
        (Views(beat(0), DEAF), 3.0, Attempt(2, (0, 2))),
        (Views(beat(0, fit="no disk"), {1: beat(1), 2: beat(2, hb.SPARE)}), 3.0, SECOND),
        (failed(host1=15.0, host2=15.0), 299.0, None),
        (failed(host1=15.0, host2=15.0), 301.0, hb.FAILED),
        (Views(beat(0, attempt=THIRD), {1: beat(1, attempt=THIRD, failure=KILLED)}), 20.0, hb.FAILED),
        # a host that does not lead starts nothing by itself
        (Views(beat(1), {0: beat(0), 2: beat(2, hb.SPARE)}), 200.0, None),
        (Views(beat(1), {0: beat(0, hb.WAITING, SECOND), 2: beat(2, hb.SPARE)}), 0.0, SECOND),
        (Views(beat(1), {0: beat(0, hb.FAILED, over="why")}), 0.0, hb.FAILED),
        (Views(beat(1), {0: beat(0), 2: beat(2, hb.SPARE)}, {0: 299.0}), 0.0, None),
        (Views(beat(1), {0: beat(0), 2: beat(2, hb.SPARE)}, {0: 301.0}), 0.0, hb.FAILED),
        (Views(beat(2, hb.SPARE), {0: beat(0, hb.FINISHED), 1: beat(1, hb.RUNNING)}), 20.0, None),
        (Views(beat(2, hb.SPARE), {0: beat(0, hb.FINISHED), 1: beat(1, hb.FINISHED)}), 20.0, hb.FINISHED),
        (Views(beat(2, hb.SPARE), {0: beat(0, hb.RUNNING), 1: beat(1, hb.STOPPED)}), 0.0, hb.STOPPED),
    ],
)
def test_what_follows_a_failed_attempt(views: Views, seconds: float, follows: str | Attempt | None) -> None:
    end = views.after(seconds)
    assert (end.state if isinstance(end, Over) else end) == follows


def test_a_host_where_the_cause_lay_twice_is_replaced() -> None:
    views = failed()
    assert views.after(3.0) == Attempt(2, (0, 1))
    second = Attempt(2, (0, 1))
    views.me = beat(0, attempt=second)
    views.others = {1: beat(1, attempt=second, failure=KILLED), 2: beat(2, hb.SPARE, second)}
    views.ask(200.0)
    assert views.ask(205.0) == Attempt(3, (0, 2))


OFF_THE_BUS = "kernel log: NVRM: Xid (PCI:0000:10:1c): 79, pid=7, name=python, GPU has fallen off the bus."


def cause(category: str, message: str, *evidence: str) -> dict[str, Any]:
    told = {"class": category, "message": message, "evidence": evidence}
    return {"kind": "exception", "rank": 1, "exit_status": 1, "time": 1.0, **told}


@pytest.mark.parametrize(
    ("first", "second", "follows"),
    [
        (cause("script_error", "KeyError: 'a'"), cause("disk_full", "no space"), "does not mend it (disk_full"),
        (cause("xid", "Xid 79"), cause("xid", "Xid 79"), ""),
        (KILLED, KILLED, ""),
        (cause("time_limit", "over"), cause("time_limit", "over"), "does not mend it (time_limit"),
        (KILLED, cause("import_error", "ModuleNotFoundError: No module named 'x'"), "does not mend it (import_error"),
        (KILLED, cause("script_error", "SyntaxError: invalid syntax"), "does not mend it (script_error: Syn"),
        (KILLED, {**cause("exit", "exit status 2"), "kind": "exit", "exit_status": 2}, "does not mend it (exit"),
    ],
)
def test_a_mistake_is_not_tried_again(first: dict[str, Any], second: dict[str, Any], follows: str) -> None:
    views = Views(beat(0), {1: beat(1, failure=first)}, rules=RULES._replace(restarts=5))
    views.after(20.0)
    again = Attempt(2, (0, 1))
    views.me, views.others = beat(0, attempt=again), {1: beat(1, attempt=again, failure=second)}
    views.ask(200.0)
    end = views.ask(220.0)
    assert isinstance(end, Over) == bool(follows) and (not isinstance(end, Over) or follows in end.why), end


def test_a_spare_takes_the_place_of_a_host_whose_gpu_failed() -> None:
    views = Views(beat(0), {1: beat(1, failure=cause("xid", "CUDA error", OFF_THE_BUS)), 2: beat(2, hb.SPARE)})
    assert views.after(3.0) == Attempt(2, (0, 2))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 3)
    yield made
    made.close()


# goes on from what the attempts before it have left; the first waits to be killed
TRAIN = """
import os, time
number = int(os.environ["NODECTL_ATTEMPT"])
os.write(1, f"up in {number}\\n".encode())
if number == 1:
    time.sleep(1000)
"""


def test_a_killed_rank_is_followed_by_a_second_attempt_on_the_same_hosts(fleet: Fleet) -> None:
    job_id = fleet.launch(TRAIN, restarts=1)
    fleet.wait_up(job_id, "up in 1", 2)
    killed = next(pid for pid in processes_of(job_id) if b"\0RANK=3\0" in Path(f"/proc/{pid}/environ").read_bytes())
    os.kill(killed, signal.SIGKILL)
    fleet.wait_settled(job_id)
    reports = fleet.reports(job_id)
    assert [report["state"]["state"] for report in reports] == ["finished"] * 3
    for rank, report in enumerate(reports):
        assert report["state"]["attempt"] == 2
        (before,) = report["state"]["attempts"]
        assert (before["number"], before["cause"]["rank"], before["cause"]["host"]) == (1, 3, "host1")
        assert fleet.output(rank, job_id).count("up in 2") == 2
        announced = "nodectl: attempt 2 on host0,host1,host2; the last one failed: host1, rank 3: killed by signal 9"
        assert announced in fleet.output(rank, job_id)
    assert processes_of(job_id) == []


def test_the_lost_host_is_the_one_that_most_others_lost_not_who_was_missed_first() -> None:
    def lost(member: int, time_s: float) -> dict[str, Any]:
        return {"kind": "host_lost", "lost": member, "exit_status": None, "time": time_s}

    cut_off = lost(2, 1.0)
    assert first_of_attempt([cut_off, lost(1, 2.0), lost(1, 3.0)]) == lost(1, 2.0)
    assert first_of_attempt([cut_off, lost(1, 2.0)]) == cut_off
    assert first_of_attempt([cut_off, lost(1, 2.0), KILLED]) == KILLED


def test_a_rank_that_left_is_no_cause_beside_one_or_beside_a_lost_host() -> None:
    left = {**KILLED, "kind": "left", "rank": 2, "exit_status": 0, "time": 0.5}
    echo = {**KILLED, "kind": "communication", "exit_status": 1, "time": 2.0}
    assert first_of_attempt([echo, left]) == left
    assert first_of_attempt([left, KILLED]) == KILLED
    assert first_of_attempt([echo, left], host_lost=True) == echo


def test_a_stop_in_the_back_off_ends_the_job_and_no_restart_follows(fleet: Fleet) -> None:
    job_id = fleet.launch("import os; os.kill(os.getpid(), 9)", restarts=5)
    fleet.wait(lambda: all(report["state"]["state"] == "resting" for report in fleet.reports(job_id)))
    for rank in range(3):
        assert fleet.ctl(rank, "stop", job_id).returncode == 0
    reports = fleet.reports(job_id)
    assert {report["state"]["state"] for report in reports} == {"stopped"}
    assert not any(report["alive"] for report in reports)
    assert processes_of(job_id) == []


# floats summed in an order that a resumed run must keep; the first host's rank writes
LEARN = """
import json, os, time
from pathlib import Path
folder, rank = Path(os.environ["NODECTL_CHECKPOINT_DIR"]), int(os.environ["RANK"])
while rank and os.environ["NODECTL_ATTEMPT"] == "1":
    time.sleep(0.1)
if rank == 0:
    found = sorted(folder.glob("step-*.json"))
    step, loss = json.loads(found[-1].read_text()) if found else (0, 1.0)
    print("from", step, flush=True)
    while step < 8:
        while step == 3 and os.environ["NODECTL_ATTEMPT"] == "1":
            time.sleep(0.1)
        step, loss = step + 1, loss * 0.7 + 0.1 / (step + 1)
        (folder / "new.tmp").write_text(json.dumps([step, loss]))
        os.replace(folder / "new.tmp", folder / f"step-{step}.json")
    print("loss", loss.hex(), flush=True)
"""


def undisturbed() -> float:
    """The loss of LEARN in one go."""
    loss = 1.0
    for step in range(1, 9):
        loss = loss * 0.7 + 0.1 / step
    return loss


def test_a_spare_that_never_heard_the_lost_host_goes_on_from_the_shared_checkpoint(
    fleet: Fleet, tmp_path: Path
) -> None:
    checkpoint = {"dir": str(tmp_path), "shared": True}
    job_id = fleet.launch(
        LEARN, start=(0, 1), restarts=1, nodes=2, nproc_per_node=1, lease_s=3.0, checkpoint=checkpoint
    )
    fleet.wait((tmp_path / "step-3.json").exists)
    state = fleet.report(1, job_id)["state"]
    for pid in (state["containment"]["guard"], state["pid"]):
        os.kill(pid, signal.SIGKILL)
    assert fleet.start(2, job_id).returncode == 0
    fleet.wait_settled(job_id)
    assert [fleet.report(rank, job_id)["state"]["state"] for rank in (0, 2)] == ["finished"] * 2
    assert fleet.report(0, job_id)["state"]["roster"] == [0, 2]
    assert fleet.output(0, job_id).splitlines()[-2:] == ["from 3", f"loss {undisturbed().hex()}"]
    assert processes_of(job_id) == []


def test_the_others_end_the_job_if_its_first_host_is_gone(fleet: Fleet) -> None:
    job_id = fleet.launch(TRAIN, restarts=1, nodes=2, lease_s=3.0, rejoin_s=4.0)
    fleet.wait(lambda: all(fleet.output(rank, job_id).count("up in 1") == 2 for rank in (0, 1)))
    state = fleet.report(0, job_id)["state"]
    for pid in (state["containment"]["guard"], state["pid"]):
        os.kill(pid, signal.SIGKILL)
    fleet.wait_settled(job_id)
    states = [fleet.report(rank, job_id)["state"] for rank in (1, 2)]
    assert [(state["state"], state["final"]) for state in states] == [("failed", True)] * 2
    assert all("the first host, which alone starts attempts, was silent" in state["no_restart"] for state in states)
    job = merge([Report(f"host{rank}", row) for rank, row in enumerate(fleet.reports(job_id))], {})
    assert job.state is JobState.FAILED and job.first_failure is not None and job.first_failure.host == "host0"
    assert processes_of(job_id) == []


@pytest.mark.slow
def test_a_host_that_was_frozen_ends_its_ranks_with_the_first_word_of_the_attempt_that_replaced_it(
    fleet: Fleet,
) -> None:
    script = TRAIN.replace("if number == 1:", "if os.environ['NODECTL_JOB_DIR'].find('/host2/') < 0:")
    job_id = fleet.launch(script, restarts=1, nodes=2, lease_s=3.0)
    fleet.wait(lambda: all(fleet.output(rank, job_id).count("up in 1") == 2 for rank in (0, 1)))
    state = fleet.report(1, job_id)["state"]
    frozen = [state["pid"], state["containment"]["guard"], *descendants({state["containment"]["guard"]})]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    fleet.wait(lambda: fleet.output(2, job_id).count("up in 2") == 2)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    fleet.wait(lambda: fleet.report(1, job_id)["state"]["state"] == "spare")
    fleet.wait(lambda: fleet.report(1, job_id)["processes"] == 1)  # its guard
    assert fleet.report(0, job_id)["state"]["state"] == "running"
    fleet.ctl(0, "stop", job_id)
    fleet.wait_settled(job_id)
    assert processes_of(job_id) == []
