"""A job on three hosts of one machine, with real processes: the ends it can come to, and that nothing stays behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.common.frames import texts
from nodectl.payload.jobs.failures import first
from nodectl.payload.jobs.process import descendants, send
from tests.payload.fleet import RUN, Fleet, answer, processes_of

SLEEP = "import os, time\nprint('up', flush=True)\ntime.sleep(1000)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
# children that leave their session, daemonise, stop themselves, adopt orphans, hop from pid to pid, hide their origin;
# whoever was not caught ends by itself, since a test run that is ended itself catches nobody
ESCAPE = """
import ctypes, os, signal, time
END = time.monotonic() + 300
def fork(body):
    if os.fork() == 0:
        try: body()
        finally: os._exit(0)
def sleep():
    while time.monotonic() < END: time.sleep(1)
def own_session(): os.setsid(); signal.signal(15, signal.SIG_IGN); sleep()
def daemon():
    os.setsid()
    if os.fork(): os._exit(0)
    os.setsid(); sleep()
def stopped(): os.kill(os.getpid(), signal.SIGSTOP); sleep()
def reaper(): ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); fork(daemon); sleep()
def hopper():
    while time.monotonic() < END:
        if os.fork(): os._exit(0)
        os.setsid(); time.sleep(0.01)
def nameless(): os.execve('/bin/sleep', ['sleep', '297'], {})
for body in (own_session, daemon, stopped, reaper, hopper, nameless): fork(body)
print('up', flush=True)
sleep()
"""


SEGMENTS = """
import mmap, os
for kind in ('psm_', 'data_'):
    path = '/dev/shm/' + kind + os.environ['NODECTL_JOB_ID'] + '-' + str(int(os.environ['RANK']) // 2)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, 4096)
    globals()[kind] = mmap.mmap(file, 4096)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 3)
    yield made
    made.close()


def failures(report: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(item["kind"], item["rank"]) for item in report["state"]["failures"]]


def rank_pid(job_id: str, rank: int) -> int:
    wanted = f"\0RANK={rank}\0"
    return next(pid for pid in processes_of(job_id) if wanted in "\0" + Path(f"/proc/{pid}/environ").read_text())


def left_over(job_id: str) -> list[object]:
    """Processes of the job, of its supervisors and guards too."""
    marks = (f"jobs.control\0start\0{job_id}".encode(), f"NODECTL_JOB_ID={job_id}\0".encode())
    found: list[object] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            seen = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            found += [folder.name] if any(mark in seen for mark in marks) else []
    return found


def test_a_job_ends_well_in_private_and_is_read_from_any_offset(fleet: Fleet) -> None:
    # one write: print's parts are several, between which the other rank of the host may write
    script = "import os, sys\nos.write(1, f\"{sys.argv[1:]} {os.environ['TOKEN']}\\n\".encode())\n"
    job_id = fleet.launch(script, ["a b", "$(x)", ""])
    fleet.wait_settled(job_id)
    for rank, report in enumerate(fleet.reports(job_id)):
        assert (report["state"]["state"], report["state"]["exit_status"]) == ("finished", 0)
        assert failures(report) == []
        assert fleet.output(rank, job_id).count("""['a b', '$(x)', ''] it's $SECRET""") == 2
    assert processes_of(job_id) == []
    folder = fleet.state(0) / "jobs" / job_id
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    assert fleet.ctl(0, "start", job_id, "0", stdin=b"{}\n").returncode == 1
    assert fleet.ctl(0, "list", "../../etc").returncode == 1
    whole, rest = (
        [json.loads(text) for text in texts(fleet.ctl(0, job_id, mode, asked, program="jobs.logs").stdout)]
        for mode, asked in (("follow", "{}"), ("once", json.dumps({"offsets": {"output.log": 5}, "inside": ""})))
    )
    assert whole[-1] == rest[-1] == {"end": True}
    shown, later = ("".join(frame.get("text", "") for frame in frames) for frames in (whole, rest))
    assert shown.count("it's $SECRET") == 2 and shown[5:] == later


# a rank that dies with its supervisor leaves the removal to Python
TRACKED = """
import os
from multiprocessing import shared_memory
name = os.environ['NODECTL_JOB_ID'] + '-' + str(int(os.environ['RANK']) // 2)
open('/dev/shm/data_' + name, 'w').close()
kept = os.environ['LOCAL_RANK'] == '0' and shared_memory.SharedMemory('psm_' + name, create=True, size=4096)
"""


@pytest.mark.parametrize("victim", [pytest.param("rank", marks=pytest.mark.slow), "supervisor"])
def test_shared_memory_of_libraries_goes_and_data_of_the_users_own_stays(fleet: Fleet, victim: str) -> None:
    job_id = fleet.launch((SEGMENTS if victim == "rank" else TRACKED) + STUBBORN, lease_s=3.0)
    fleet.wait_up(job_id, "up", 2)
    made = [Path(f"/dev/shm/{kind}{job_id}-{host}") for kind in ("psm_", "data_") for host in range(3)]
    try:
        assert all(path.exists() for path in made)
        os.kill(rank_pid(job_id, 3) if victim == "rank" else fleet.report(1, job_id)["state"]["pid"], signal.SIGKILL)
        fleet.wait_settled(job_id)
        fleet.wait(lambda: bool(fleet.report(1, job_id)["state"]["final"]))
        fleet.wait(lambda: [path.exists() for path in made] == [False] * 3 + [True] * 3)
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def test_one_stop_ends_the_job_on_all_hosts_and_nothing_escapes(fleet: Fleet) -> None:
    job_id = fleet.launch(ESCAPE)
    fleet.wait_up(job_id, "up", 2)
    assert len(processes_of(job_id)) > 20
    fleet.ctl(0, "stop", job_id)
    assert fleet.wait_settled(job_id) < 10
    assert {report["state"]["state"] for report in fleet.reports(job_id)} == {"stopped"}
    assert processes_of(job_id) == []


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("stopping", "rebooted", "the node was shut down while the job ran there"),
        pytest.param(
            *("running", "supervisor", "was asked to end by a signal, not by `nodectl jobs stop`"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_node_that_shuts_down_is_no_stop_by_an_operator(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, said: str, kind: str, words: str
) -> None:
    tools = fleet.root / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f"#!/bin/sh\n[ $1 = is-system-running ] && echo {said}\n")
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    job_id = fleet.launch(SLEEP)
    fleet.wait_up(job_id, "up", 2)
    state = fleet.report(1, job_id)["state"]
    everybody = (*descendants({state["containment"]["guard"]}), state["containment"]["guard"])
    # as systemd asks all that is there, and all before the first has done as it was told
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        for pid in everybody:
            send(pid, number)
    fleet.wait_settled(job_id)
    reports = fleet.reports(job_id)
    assert {report["state"]["state"] for report in reports} == {"failed"}
    cause = first(reports[1]["state"]["failures"])
    assert cause is not None
    assert (cause["kind"], cause["rank"]) == (kind, None) and words in cause["message"], reports[1]["state"]["failures"]
    assert processes_of(job_id) == []


def test_a_killed_supervisor_takes_its_ranks_along_and_is_missed(fleet: Fleet) -> None:
    job_id = fleet.launch(SLEEP, lease_s=3.0)
    fleet.wait_up(job_id, "up", 2)
    os.kill(fleet.report(1, job_id)["state"]["pid"], signal.SIGKILL)
    fleet.wait_settled(job_id)
    for rank in (0, 2):
        state = fleet.report(rank, job_id)["state"]
        assert (state["state"], state["lost"]) == ("failed", [1])
    fleet.wait(lambda: bool(fleet.report(1, job_id)["state"]["final"]))
    assert failures(fleet.report(1, job_id)) == [("supervisor", None)]
    assert left_over(job_id) == []
    assert fleet.ctl(1, "stop", job_id).returncode == 0
    assert fleet.report(1, job_id)["state"]["state"] == "failed"


def test_no_rank_starts_before_every_host_was_heard(fleet: Fleet) -> None:
    job_id = fleet.launch(SLEEP, start=[0, 2], start_deadline_s=3.0)
    fleet.wait_settled(job_id, [0, 2])
    states = [fleet.report(rank, job_id)["state"] for rank in (0, 2)]
    assert [state["state"] for state in states] == ["failed", "failed"]
    failed = [state for state in states if state["lost"] == [1]]  # who waited longest; the other may have heard of it
    assert failed and "never heard" in failed[0]["failures"][0]["message"]
    assert fleet.output(0, job_id) == ""


def test_a_taken_port_is_said_at_the_start(fleet: Fleet) -> None:
    first = fleet.launch(SLEEP)
    fleet.wait_up(first, "up", 2)
    plan = json.loads((fleet.state(0) / "jobs" / first / "plan.json").read_text())
    second = fleet.launch(SLEEP, start=[], heartbeat_port=plan["heartbeat_port"])
    refused = fleet.start(0, second)
    assert refused.returncode == 1
    assert b"Address already in use" in refused.stderr


def test_only_the_start_of_a_job_imports_what_a_supervisor_needs(fleet: Fleet) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-X", "importtime", str(RUN), "jobs.control", "list"],
        env={**os.environ, "XDG_STATE_HOME": str(fleet.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "json" in imported
    unused = {"tarfile", "hashlib", "pathlib", "queue", "traceback", "random", "payload.jobs.supervisor"}
    assert imported & unused == set()


def test_clean_keeps_what_runs(fleet: Fleet) -> None:
    running, ended = fleet.launch(SLEEP), fleet.launch("pass")
    fleet.wait_settled(ended)
    answers = answer(fleet.ctl(0, "clean"))
    assert {row["id"]: row["removed"] for row in answers} == {running: False, ended: True}
    assert not (fleet.state(0) / "jobs" / ended).exists()
