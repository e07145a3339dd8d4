"""`node_trial` on folders of a test: free, armed, guarded, off; and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from tests.trials.arming.node import LIBRARY, PACKAGE, Node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="records are root's")


def off(arm_node: Node, **more: Any) -> dict[str, Any]:
    return arm_node.module("node_trial", state="off", trial=arm_node.name, **more)


def test_off_puts_back_ends_the_guard_and_leaves_nothing(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=600)
    process = arm_node.guard()
    arm_node.file.write_text("tried\n")
    assert arm_node.module("node_trial", state="guarded", trial=arm_node.name)["trial"]["state"] == "armed"
    answer = off(arm_node)
    assert answer["changed"] and answer["trial"] == {"state": "off"}, answer
    assert process.wait(20) == -signal.SIGTERM
    assert arm_node.file.read_text() == "former\n" and not (arm_node.root / "trials").exists()
    assert not list((arm_node.root / "runs").glob("2*"))
    assert off(arm_node)["trial"] == {"state": "gone"} and not off(arm_node)["changed"]


def test_off_keeps_the_guard_where_something_is_not_back(arm_node: Node) -> None:
    arm_node.record()
    arm_node.file.write_text("tried\n")
    digest = next((arm_node.root / "runs" / arm_node.name / "files").iterdir())
    digest.unlink()
    arm_node.folder_of_a_trial(lease_s=600)
    process = arm_node.guard()
    answer = off(arm_node)
    assert answer.get("failed") and "is gone" in answer["msg"], answer
    assert process.poll() is None and arm_node.trial.guard() == process.pid


@pytest.mark.parametrize("why", ["not armed", "acted", "no guard"])
def test_guarded_refuses(arm_node: Node, why: str) -> None:
    if why != "not armed":
        arm_node.folder_of_a_trial(lease_s=600)
    if why == "acted":
        arm_node.guard()
        arm_node.trial.say(state="restored", since=1.0, at=2.0, why="it was late", errors=[])
    answer = arm_node.module("node_trial", state="guarded", trial=arm_node.name)
    words = {
        "not armed": "is not armed for trial",
        "acted": "begun to put itself back at 1970-01-01 00:00:01 UTC: it was late",
        "no guard": "nobody watches this host",
    }
    assert answer["failed"] and words[why] in answer["msg"], answer


def test_another_trial_is_refused_with_its_holder_and_its_record_stays(arm_node: Node) -> None:
    arm_node.record()
    arm_node.file.write_text("tried\n")
    arm_node.folder_of_a_trial(lease_s=600)
    arm_node.guard()
    refused = arm_node.module("node_trial", state="free", trial="other")
    assert refused["failed"] and "of me@here for 'a test' since" in refused["msg"], refused
    assert "put back by itself 600 s after" in refused["msg"]
    # one that came at the same time was told that it is free, and has its record by now
    arm_node.module("node_record", state="begin", run="other", touches={"a_touches": {"paths": [str(arm_node.file)]}})
    armed = arm_node.module("node_trial", state="armed", trial="other", library=LIBRARY)
    assert armed["failed"] and "held by trial" in armed["msg"]
    assert not (arm_node.root / "runs" / "other").exists(), "it would take the other's setting for the former value"
    forced = arm_node.module("node_trial", state="free", trial="other", force=True)
    assert "--force" in forced["trial"]["notes"][0] and arm_node.file.read_text() == "former\n"


def test_a_dead_trial_is_in_the_way_only_while_there_is_something_to_put_back(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=600)
    refused = arm_node.module("node_trial", state="free", trial="other")
    assert refused["failed"] and "nobody watches it any more" in refused["msg"], refused
    arm_node.module("node_rollback", state="undone")  # by hand
    free = arm_node.module("node_trial", state="free", trial="other")
    assert "left nothing to put back" in free["trial"]["notes"][0] and not arm_node.trial.there()


def test_arming_needs_a_record(arm_node: Node) -> None:
    answer = arm_node.module("node_trial", state="armed", trial=arm_node.name, library=LIBRARY)
    assert answer["failed"] and "no record" in answer["msg"] and not (arm_node.root / "trials").exists()


def test_a_note_is_told_once(arm_node: Node) -> None:
    arm_node.record()
    arm_node.folder_of_a_trial(lease_s=0.1)
    arm_node.guard().wait(20)
    first = arm_node.module("node_trial", state="free", trial="other")
    assert "was put back by itself at" in first["trial"]["notes"][0]
    assert arm_node.module("node_trial", state="free", trial="other")["trial"]["notes"] == []


def test_what_the_playbook_sends_is_all_that_the_guard_needs() -> None:
    import yaml

    (play,) = yaml.safe_load((share_dir() / "playbooks" / "trial_arm.yml").read_text())
    text = next(task["vars"]["trial_modules"] for task in play["tasks"] if "vars" in task)
    sent = set(json.loads(text.strip("{} \n").replace("'", '"')))
    needed, waiting = set(), {"trial_guard"}
    while waiting:
        name = waiting.pop()
        needed.add(name)
        words = [line.split() for line in LIBRARY[name].splitlines() if PACKAGE in line]
        found = {part.strip(",") for line in words for part in line} & set(LIBRARY)
        found |= {part.rpartition(".")[2] for line in words for part in line if part.startswith(f"{PACKAGE}.")}
        waiting |= found - needed
    assert sent == needed
