"""A play holds the node by the lock that nodectl itself takes: the module as Ansible runs it, its action in a play."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.process import has_ended
from nodectl.common.resources import share_dir
from nodectl.payload.common import host_lock
from nodectl.payload.probes import locks
from tests.roles.run_module import run_module

MODULE = "plugins/modules/node_lock.py"
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - nodectl.fleet.node_lock: {{state: held, run: {run}, by: ada@laptop, folder: "{folder}"}}
    - ansible.builtin.debug: {{msg: "it is ours"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For locks; whatever holds one there ends with the test."""
    place = tmp_path / "locks"
    place.mkdir()
    place.chmod(0o1777)
    yield place
    for path in place.glob("*.lock.*"):
        path.write_text("{}")


def node(folder: Path, state: str, run: str, check: bool = False, **more: object) -> dict[str, Any]:
    arguments = {"state": state, "run": run, "by": f"{run}@laptop", "folder": str(folder), **more}
    return run_module(MODULE, arguments, folder=folder.parent, check=check)


def holder_for_nodectl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """Who has the node, as a nodectl sees it that only measures; None where it would get it."""
    monkeypatch.setattr(host_lock, "COMMON_FOLDERS", (str(folder),))
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    file = host_lock.open_lock(str(lock_of(folder)))
    try:
        return locks.take_machine(file, str(lock_of(folder)), "another", fcntl.LOCK_SH)
    finally:
        os.close(file)


def lock_of(folder: Path) -> Path:
    return folder / f"nodectl-{host_lock.host_name()}.lock"


def claim_of(folder: Path) -> dict[str, Any]:
    """What this login says who holds the lock."""
    claim: dict[str, Any] = json.loads(Path(host_lock.claim_path(str(lock_of(folder)), os.geteuid())).read_text())
    return claim


def freed(folder: Path, monkeypatch: pytest.MonkeyPatch, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if holder_for_nodectl(folder, monkeypatch) is None:
            return True
        time.sleep(0.2)
    return False


def play(folder: Path, run: str, **env: str) -> str:
    """The output of a play that takes the lock and ends without letting go."""
    (folder.parent / "play.yml").write_text(PLAY.format(run=run, folder=folder), encoding="utf-8")
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "here,", str(folder.parent / "play.yml")]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}"]
    own = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(folder.parent / "ansible"), **env}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **own})
    return done.stdout + done.stderr


def test_nodectl_and_another_run_are_told_who_holds_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(folder, "held", "one")["held"]
    holder = holder_for_nodectl(folder, monkeypatch)
    assert holder is not None
    assert (holder["operator"], holder["what"]) == ("one@laptop", "ansible-playbook")
    refused = node(folder, "held", "two")
    assert refused["failed"] and "held by one@laptop for 'ansible-playbook' since 20" in refused["msg"]
    assert not node(folder, "held", "two", force=True)["held"]


def test_a_node_that_nodectl_holds_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_lock, "COMMON_FOLDERS", (str(folder),))
    file = host_lock.open_lock(str(lock_of(folder)))
    assert locks.take_machine(file, str(lock_of(folder)), "theirs", fcntl.LOCK_EX) is None
    here = {"pid": os.getpid(), "start": host_lock.started(os.getpid())}
    claim = {"token": "theirs", "operator": "bob@desk", "what": "probe tcp", "since": 1.7e9, **here}
    host_lock.write_claim(str(lock_of(folder)), claim)
    try:
        assert "held by bob@desk for 'probe tcp' since 2023-11-14" in node(folder, "held", "one")["msg"]
    finally:
        os.close(file)
    assert node(folder, "held", "one")["held"]


def test_later_plays_of_the_run_have_it_and_its_end_frees_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(folder, "held", "one")["held"] and node(folder, "held", "one")["held"]
    node(folder, "free", "two")
    assert holder_for_nodectl(folder, monkeypatch) is not None
    node(folder, "free", "one")
    assert holder_for_nodectl(folder, monkeypatch) is None


@pytest.mark.parametrize("check", [False, True])
def test_a_link_in_the_locks_place_is_named_with_its_login_and_to_be_removed(folder: Path, check: bool) -> None:
    lock_of(folder).symlink_to("/etc/pass\nwd")
    os.lchown(lock_of(folder), 65534, 65534)
    refused = node(folder, "held", "one", check=check, force=True)
    assert refused["failed"] and f"{lock_of(folder)} is a link to /etc/pass\\nwd" in refused["msg"]
    assert f"of login {host_lock._login(65534)}; remove it: " in refused["msg"] and "force" not in refused["msg"]


def test_check_mode_takes_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not node(folder, "held", "one", check=True)["held"]
    assert holder_for_nodectl(folder, monkeypatch) is None


def test_it_is_free_some_time_after_the_connection_has_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import sys
from ansible_collections.nodectl.fleet.plugins.module_utils import host_lock
path = host_lock.lock_path((sys.argv[1],))
host_lock.take(path, {"token": "one", "renewed": 1, "connection": [int(sys.argv[2]), sys.argv[3]]}, grace_s=1)
"""
    with subprocess.Popen(["sleep", "60"]) as connection:
        start = Path(f"/proc/{connection.pid}/stat").read_text().rpartition(")")[2].split()[19]
        argv = [sys.executable, "-c", text, str(folder), str(connection.pid), start]
        subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": str(share_dir())})
        assert not freed(folder, monkeypatch, 3)
        connection.kill()
    assert freed(folder, monkeypatch, 20)


@pytest.mark.slow
def test_a_play_that_has_ended_is_relieved_by_the_next_and_by_nodectl(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "it is ours" in play(folder, "one")
    assert claim_of(folder).get("token") == "one"  # nobody let go of it
    assert "it is ours" in play(folder, "two")
    assert claim_of(folder).get("token") == "two"
    holder = holder_for_nodectl(folder, monkeypatch)
    assert holder is not None
    told = locks.words_of(holder)["run"]
    assert has_ended(told["controller"])
    file = host_lock.open_lock(str(lock_of(folder)))
    try:
        lock = str(lock_of(folder))
        assert locks.take_machine(file, lock, "theirs", fcntl.LOCK_EX, stale="another run") == holder
        assert locks.take_machine(file, lock, "theirs", fcntl.LOCK_EX, stale=told["token"]) is None
    finally:
        os.close(file)


def test_below_nodectl_a_play_takes_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "it is ours" in play(folder, "one", NODECTL_HOLDS="1")
    assert holder_for_nodectl(folder, monkeypatch) is None
