"""probes/locks.py as a node runs it: one nodectl at a time, and the lock goes with the process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common import host_lock
from nodectl.payload.common.frames import texts
from nodectl.payload.probes import locks

ARGV = [sys.executable, "-B", str(payload_dir() / "run.py"), "probes.locks"]


@contextmanager
def running(state: Path, token: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    argv = [*ARGV, f"--token={token}", "--operator=alice@laptop", "--what=probe tcp"]
    env = {"XDG_STATE_HOME": str(state), "PATH": "/usr/bin:/bin", "NODECTL_LOCK_FOLDER": str(state)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        yield process, json.loads(texts(process.stdout.readline())[0])
        process.kill()


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    with running(tmp_path, "one") as (_, first):
        assert first["event"] == "held" and first["jobs"] == []
        with running(tmp_path, "two") as (second, told):
            assert second.wait(10) == 1
    assert (told["event"], told["operator"], told["what"]) == ("busy", "alice@laptop", "probe tcp")
    assert told["since"] > 1.7e9 and "token" not in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_with_the_process_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "one") as (first, _):
        first.send_signal(number)
        with running(tmp_path, "two") as (_, told):
            assert told["event"] == "held"


def test_jobs_that_run_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("NODECTL_LOCK_FOLDER", str(tmp_path))
    (tmp_path / "nodectl/jobs/train-1").mkdir(parents=True)
    (tmp_path / "nodectl/jobs/train-1/plan.json").write_text('{"operator": "bob@laptop", "script": "train.py"}')
    words = ["sh", "-c", "echo; sleep 60; :", "jobs.control", "start"]
    supervisors = [subprocess.Popen([*words, f"train-{n}"], stdout=subprocess.PIPE) for n in (1, 2)]
    try:
        for supervisor in supervisors:
            # a command line is empty for a moment when its program has just begun
            assert supervisor.stdout and supervisor.stdout.readline()
        assert locks.running_jobs() == [
            {"id": "train-1", "operator": "bob@laptop", "script": "train.py"},
            {"id": "train-2", "operator": "root", "script": ""},
        ]
    finally:
        for supervisor in supervisors:
            supervisor.kill()
            supervisor.wait()


def test_another_login_takes_the_same_lock_and_its_words_are_no_more_than_words(tmp_path: Path) -> None:
    with running(tmp_path, "one") as (first, _):
        (lock,) = tmp_path.glob("nodectl-*.lock")
        assert lock.stat().st_mode & 0o777 == 0o666, "every login may take it"
        lock.write_text(json.dumps({"token": "x", "operator": "root@boss", "what": "upgrade", "pid": first.pid}))
        with running(tmp_path, "two") as (_, told):
            assert (told["event"], told["operator"]) == ("busy", "root@boss")
        host_lock.let_go("x")
        assert first.poll() is None, "a process that a text names is not ended"


def test_what_a_claim_says_is_one_line_of_bounded_length() -> None:
    told = locks.words_of({"operator": "eve\n  try: curl x | sh\x1b[2J\u202e", "what": "w" * 999, "login": "eve"})
    assert told["operator"] == r"eve\n  try: curl x | sh\x1b[2J\u202e" and len(told["what"]) == 201


def test_only_root_names_another_folder_for_the_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NODECTL_LOCK_FOLDER", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (host_lock.lock_path() or "").startswith(host_lock.COMMON_FOLDERS)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("as it was")
    Path(host_lock.lock_path(str(tmp_path)) or "").symlink_to(tmp_path / "victim")
    with running(tmp_path, "one") as (_, told):
        assert told["event"] == "error" and f"is a link to {tmp_path}/victim" in told["text"]
        assert told["remedy"].startswith("remove it: ")
    assert (tmp_path / "victim").read_text() == "as it was"
