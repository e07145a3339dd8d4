"""A guard on folders of a test: it acts when the lease runs out, at a boot, after a kill; and on nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trials.arming.node import Node, utils

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="records are root's")


def test_it_puts_back_once_nobody_renews_and_leaves_a_word(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial()
    process = arm_node.guard()
    arm_node.file.write_text("tried\n")
    for beat in range(1, 11):  # twice the lease
        Path(arm_node.trial.path("lease")).write_text(str(beat))
        time.sleep(0.2)
    assert arm_node.file.read_text() == "tried\n" and arm_node.state() == "armed"
    arm_node.until(lambda: arm_node.trial.state().get("seen") or arm_node.state() != "armed")
    assert process.wait(20) == 0, process.stderr
    assert arm_node.file.read_text() == "former\n"
    said = arm_node.trial.state()
    assert said["state"] == "restored" and said["why"] == "no sign of life from me@here for 1 s"
    assert said["at"] == pytest.approx(time.time(), abs=20)
    assert sorted(path.name for path in Path(arm_node.trial.folder).iterdir()) == ["guard.lock", "state"]
    assert not list((arm_node.root / "runs").glob("2*")), "nothing differs any more: no record"


def test_neither_a_jumping_clock_nor_an_old_beat_renews(arm_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = utils("undo.guard")
    arm_node.folder_of_a_trial(lease_s=0.3)
    lease = Path(arm_node.trial.path("lease"))
    lease.write_text("7")
    monkeypatch.setattr(guard.time, "time", lambda: 0.0)
    started = time.monotonic()

    def touch(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        os.utime(lease, (4e9, 4e9))  # far in the future
        sleep(seconds)

    monkeypatch.setattr(guard.time, "sleep", touch)
    assert guard.watch(arm_node.trial, 0.3) is True
    assert 0.3 <= time.monotonic() - started < 10


def test_a_trial_that_is_taken_off_ends_the_guard_and_changes_nothing(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=30)
    process = arm_node.guard()
    Path(arm_node.trial.path("armed.json")).unlink()
    arm_node.file.write_text("somebody's\n")
    assert process.wait(20) == 0
    assert arm_node.file.read_text() == "somebody's\n"


def test_after_a_boot_it_restores_at_once_and_tells_systemd(arm_node: Node, tmp_path: Path) -> None:
    import socket

    arm_node.record()
    arm_node.file.write_text("tried\n")
    arm_node.folder_of_a_trial(lease_s=600, boot="another boot")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(20)
        process = arm_node.guard(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert told.recv(100) == b"READY=1"
        assert arm_node.file.read_text() == "former\n", "before those that wait for it are started"
    assert process.wait(40) == 0
    assert "started anew" in arm_node.trial.state()["why"] and arm_node.state() == "restored"


def test_killed_on_its_way_the_next_one_goes_on(arm_node: Node) -> None:
    arm_node.record()
    arm_node.file.write_text("tried\n")
    arm_node.folder_of_a_trial(lease_s=600)
    arm_node.trial.write_state(state="restoring", since=1.0, why="an earlier one said so", errors=[])
    assert arm_node.guard().wait(20) == 0
    assert arm_node.file.read_text() == "former\n" and arm_node.trial.state()["why"] == "an earlier one said so"


def test_a_playbook_that_is_still_at_it_is_ended_and_gets_in_no_more(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=0.3, settle_s=1.5)
    python = arm_node.trial.path("python3")
    write = "import sys, time\nwhile True:\n    open(sys.argv[1], 'w').write('tried\\n'); time.sleep(0.01)"
    at_it = subprocess.Popen([python, "-c", write, str(arm_node.file)])
    arm_node.until(lambda: arm_node.file.read_text() == "tried\n")
    process = arm_node.guard()
    try:
        assert at_it.wait(20) == -signal.SIGKILL
        arm_node.until(lambda: arm_node.state() == "restored")
        assert arm_node.file.read_text() == "former\n"
        assert not Path(python).exists()
        arm_node.file.write_text("an operator's, afterwards\n")
        assert process.wait(20) == 0
        assert arm_node.file.read_text() == "an operator's, afterwards\n", "only what the trial does is undone"
    finally:
        at_it.kill()


@pytest.mark.slow
def test_a_child_that_comes_through_late_is_undone_too(arm_node: Node) -> None:
    """Marked as the trial's, it starts when the values were back already."""
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=0.2, settle_s=3)
    process = arm_node.guard()
    arm_node.until(lambda: arm_node.state() == "restored")
    late = f"import time, pathlib; pathlib.Path({str(arm_node.file)!r}).write_text('late\\n'); time.sleep(60)"
    trials = utils("undo.trials")
    child = subprocess.Popen([sys.executable, "-c", late], env={**os.environ, trials.MARK: arm_node.name})
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={trials.MARK: "another"})
    try:
        assert child.wait(20) == -signal.SIGKILL
        arm_node.until(lambda: arm_node.file.read_text() == "former\n")
        assert process.wait(20) == 0
        assert other.poll() is None, "another trial's goes on"
    finally:
        for each in (child, other):
            each.kill()
            each.communicate()
