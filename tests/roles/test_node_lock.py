"""A play holds the node by the lock that nodectl itself takes: the module as Ansible runs it, and in a play."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from nodectl.payload.common import host_lock
from tests.playbooks import PROGRAM
from tests.roles.run_module import run_module

MODULE = "plugins/modules/node_lock.py"
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - nodectl.fleet.node_lock: {{state: held, run: {run}, by: ada@laptop, folder: "{folder}"}}
    - nodectl.fleet.node_lock: {{state: held, run: {run}, by: ada@laptop, folder: "{folder}"}}
    - nodectl.fleet.node_lock: {{state: held, run: other, by: bob@desk, folder: "{folder}"}}
      ignore_errors: true
    - ansible.builtin.debug: {{msg: "it is ours"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For locks; whatever holds one there ends with the test."""
    place = tmp_path / "locks"
    place.mkdir()
    yield place
    for run in ("one", "two"):
        host_lock.let_go(run)


def node(folder: Path, state: str, run: str, check: bool = False, **more: object) -> dict[str, Any]:
    arguments = {"state": state, "run": run, "by": f"{run}@laptop", "folder": str(folder), **more}
    return run_module(MODULE, arguments, folder=folder.parent, check=check)


def holder(folder: Path) -> dict[str, Any]:
    """Who has the node, as nodectl sees it; {} if it would get it."""
    file, found = host_lock.take(host_lock.lock_path(str(folder)) or "", {"token": "another"})
    if file >= 0:
        os.close(file)
    return found


@pytest.fixture
def stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of a module under test is this process."""
    monkeypatch.setattr(host_lock, "WAIT_S", 0.5)
    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    monkeypatch.setattr(host_lock, "connection", lambda: (str(os.getpid()), start))


def hold(folder: Path, run: str) -> dict[str, Any]:
    mine = {"token": run, "operator": f"{run}@laptop", "what": "ansible-playbook"}
    return host_lock.hold(host_lock.lock_path(str(folder)) or "", mine)


def test_later_plays_of_the_run_have_it_others_are_told_and_its_end_frees_it(folder: Path, stays: None) -> None:
    assert hold(folder, "one") == hold(folder, "one") == {}
    found = holder(folder)
    assert (found["operator"], found["what"]) == ("one@laptop", "ansible-playbook")
    refused = node(folder, "held", "two")
    assert refused["failed"] and "held by one@laptop for 'ansible-playbook' since 20" in refused["msg"]
    forced = node(folder, "held", "two", force=True)
    assert not forced["held"] and "one@laptop" in str(forced["warnings"])
    node(folder, "free", "two")
    assert holder(folder)
    node(folder, "free", "one")
    assert holder(folder) == {}


def test_no_force_changes_a_node_that_runs_a_job(folder: Path) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60; :", "jobs.control", "start", "train-1"]) as supervisor:
        refused = node(folder, "held", "one", force=True)
        supervisor.kill()
    assert refused["failed"] and "job train-1 of root" in refused["msg"] and "jobs stop train-1" in refused["msg"]
    assert node(folder, "held", "one")["held"]


def test_a_run_of_a_node_that_nodectl_holds_is_refused(folder: Path) -> None:
    mine = {"token": "theirs", "operator": "bob@desk", "what": "probe tcp"}
    file, _ = host_lock.take(host_lock.lock_path(str(folder)) or "", mine)
    try:
        assert "held by bob@desk for 'probe tcp' since 20" in node(folder, "held", "one")["msg"]
    finally:
        os.close(file)
    assert node(folder, "held", "one")["held"]


def test_values_of_a_trial_that_are_still_on_hold_the_node(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lock, "TRIALS", str(tmp_path / "trials"))
    monkeypatch.setattr(host_lock, "WAIT_S", 0.2)
    (tmp_path / "trials" / "t1").mkdir(parents=True)
    about = {"operator": "ada@laptop", "what": "tune trial t1", "since": time.time()}
    (tmp_path / "trials" / "t1" / "about.json").write_text(json.dumps(about))
    assert holder(folder) == {**about, "left": True}
    (tmp_path / "trials" / "t1" / "about.json").unlink()
    assert holder(folder) == {}


@pytest.mark.parametrize("check", [False, True])
def test_a_link_in_the_locks_place_is_named_with_its_login_and_to_be_removed(folder: Path, check: bool) -> None:
    lock = Path(host_lock.lock_path(str(folder)) or "")
    lock.symlink_to("/etc/pass\nwd")
    os.lchown(lock, 65534, 65534)
    refused = node(folder, "held", "one", check=check, force=True)
    assert refused["failed"] and f"{lock} is a link to /etc/pass\\nwd" in refused["msg"]
    assert "of user 65534; remove it: " in refused["msg"] and "force" not in refused["msg"]


def test_a_record_holds_the_node_from_its_begin_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(state: str, run: str) -> dict[str, Any]:
        arguments = {"state": state, "run": run, "by": f"{run}@laptop", "hold": True, "folder": str(folder / "state")}
        env = {"NODECTL_LOCK_FOLDER": str(folder)}
        return run_module("plugins/modules/node_record.py", arguments, folder=folder.parent, env=env)

    mine = {"token": "theirs", "operator": "bob@desk", "what": "probe tcp"}
    file, _ = host_lock.take(host_lock.lock_path(str(folder)) or "", mine)
    assert "held by bob@desk for 'probe tcp' since 20" in record("begin", "one")["msg"]
    assert not (folder / "state").exists()
    os.close(file)
    assert record("begin", "one")["run"] == "one" and not record("settle", "one").get("failed")
    assert holder(folder) == {}


def test_check_mode_takes_none(folder: Path) -> None:
    assert not node(folder, "held", "one", check=True)["held"]
    assert holder(folder) == {}


def test_a_play_that_has_ended_without_letting_go_holds_it_no_more(folder: Path) -> None:
    (folder.parent / "play.yml").write_text(PLAY.format(run="one", folder=folder), encoding="utf-8")
    play = [PROGRAM, "-i", "here,", str(folder.parent / "play.yml")]
    play += ["-e", f"ansible_python_interpreter={sys.executable}"]
    own = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(folder.parent / "ansible")}
    # a shell whose arguments speak of ansible outlives the play
    argv = ["sh", "-c", '"$@"; echo over; exec sleep 60', "ansible", *play]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **own}) as shell:
        printed = "".join(iter((shell.stdout or sys.stdin).readline, "over\n"))
        until = time.monotonic() + 20
        while (left := holder(folder)) and time.monotonic() < until:  # its holder sees the end of the connection
            time.sleep(0.1)
        shell.kill()
    assert "it is ours" in printed and "held by ada@laptop for 'ansible-playbook'" in printed, printed
    assert left == {}
