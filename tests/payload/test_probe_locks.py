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
from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.probes import locks

ARGV = [sys.executable, "-B", str(payload_dir() / "run.py"), "probes.locks"]


@contextmanager
def running(state: Path, token: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    argv = [*ARGV, f"--token={token}", "--operator=alice@laptop", "--what=probe tcp"]
    env = {"XDG_STATE_HOME": str(state), "PATH": "/usr/bin:/bin"}
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


def test_a_state_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nodectl").write_text("a file where the folder should be")
    with running(tmp_path, "one") as (process, told):
        assert process.wait(10) == 1
    assert told["event"] == "error" and "cannot be locked" in told["text"]


def test_jobs_that_run_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name, pid in (("train-1", 0), ("train-2", 1)):
        folder = tmp_path / "nodectl/jobs" / name
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps({"operator": "bob@laptop", "script": "train.py"}))
        (folder / "rank").write_text('{"rank": 0}')
        (folder / "state.json").write_text(
            json.dumps({"state": "running", "final": False, "pid": pid, "start_ticks": 5})
        )
    monkeypatch.setattr(JobFolder, "supervisor_alive", lambda job: job.state()["pid"] == 1)
    assert locks.running_jobs() == [{"id": "train-2", "operator": "bob@laptop", "script": "train.py"}]


ALONE = (
    "import sys\nfrom nodectl.payload.probes import locks\n"
    "locks.host_lock.COMMON_FOLDERS = (sys.argv[1],)\nsys.exit(locks.main(sys.argv[2:]))\n"
)


@contextmanager
def of_login(machine: Path, login: str, *more: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """The lock as another login of the same machine takes it: with a state folder of its own."""
    machine.mkdir(exist_ok=True)
    machine.chmod(0o1777)
    options = [f"--token={login}", f"--operator={login}@laptop", "--what=provision", *more]
    env = {"XDG_STATE_HOME": str(machine / login), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-c", ALONE, str(machine), *options]
    root = payload_dir().parents[1]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env, cwd=root) as process:
        assert process.stdout is not None
        yield process, json.loads(texts(process.stdout.readline())[0])
        process.kill()


def test_who_changes_the_host_has_it_alone_whoever_logs_in(tmp_path: Path) -> None:
    with of_login(tmp_path / "m", "ada", "--changes") as (_, first):
        assert first["event"] == "held"
        for more in ((), ("--changes",)):
            with of_login(tmp_path / "m", "bob", *more) as (second, told):
                assert (told["event"], told["operator"], told["what"]) == ("busy", "ada@laptop", "provision")
                assert second.wait(10) == 1


def test_who_is_relieved_goes_and_lets_the_next_one_in(tmp_path: Path) -> None:
    controller = '--controller={"host": "laptop", "pid": 7, "start": "1"}'
    with of_login(tmp_path / "m", "ada", "--changes", controller) as (first, _):
        with of_login(tmp_path / "m", "ada2", "--changes") as (_, told):
            assert told["run"] == {"token": "ada", "controller": {"host": "laptop", "pid": 7, "start": "1"}}
        assert first.poll() is None
        # of another login, and so by the machine's lock alone
        with of_login(tmp_path / "m", "bob", "--changes", "--stale=ada") as (_, told):
            assert told["event"] == "held"
        assert first.wait(10) == -signal.SIGTERM


def test_a_login_cannot_hold_it_as_another_nor_end_anothers(tmp_path: Path) -> None:
    """A rogue locks the file, writes a claim under another login's name, and one that names another's process."""
    machine = tmp_path / "m"
    tmp_path.chmod(0o755)
    with of_login(machine, "ada", "--changes") as (first, _):
        lock = machine / f"nodectl-{host_lock.host_name()}.lock"
        assert (
            lock.stat().st_mode & 0o777 == 0o644
            and Path(host_lock.claim_path(str(lock), os.getuid())).stat().st_mode & 0o077 == 0o044
        )
        forged = {"token": "x", "operator": "root@boss", "what": "upgrade", "since": 9e9}
        forged |= {"pid": first.pid, "start": host_lock.started(first.pid)}
        for owner, place in ((65534, 65534), (65534, 4242)):
            path = Path(host_lock.claim_path(str(lock), place))
            path.write_text(json.dumps(forged))
            os.chown(path, owner, owner)
        found = host_lock.claims(str(lock))
        assert [(claim["operator"], claim["uid"]) for claim in found] == [("root@boss", 65534), ("ada@laptop", 0)]
        assert found[0]["login"] == host_lock._login(65534) != "root"
        assert not host_lock.relieve(found[0]) and first.poll() is None, "the process that it names is another login's"


def test_what_a_claim_says_is_one_line_of_bounded_length() -> None:
    told = locks.words_of({"operator": "eve\n  try: curl x | sh\x1b[2J\u202e", "what": "w" * 999, "login": "eve"})
    assert told["operator"] == r"eve\n  try: curl x | sh\x1b[2J\u202e" and len(told["what"]) == 201


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "victim").write_text("as it was")
    (tmp_path / "m" / f"nodectl-{host_lock.host_name()}.lock").symlink_to(tmp_path / "victim")
    with of_login(tmp_path / "m", "ada", "--changes") as (_, told):
        assert told["event"] == "error" and f"is a link to {tmp_path}/victim" in told["text"]
        assert told["remedy"].startswith("remove it: ")
    assert (tmp_path / "victim").read_text() == "as it was"
