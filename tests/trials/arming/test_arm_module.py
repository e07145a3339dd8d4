"""`node_trial` on folders of a test: free, armed, guarded, off; and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from tests.trials.arming.node import PACKAGE, Node

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
    armed = arm_node.module("node_trial", state="armed", trial="other")
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


def test_a_guard_is_all_that_the_module_loads_also_out_of_ansibles_archive(tmp_path: Path) -> None:
    utils, archive, lib = share_dir() / "plugins" / "module_utils", tmp_path / "sent.zip", tmp_path / "lib"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in utils.rglob("*.py"):
            packed.write(path, Path(*PACKAGE.split("."), path.relative_to(utils)))
    script = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(archive)!r})\n"
        f"from {PACKAGE}.undo import guard, trials\n"
        "print(json.dumps(trials.library()))\n"
    )
    done = subprocess.run([sys.executable, "-BEsSc", script], capture_output=True, text=True, check=True)
    texts: dict[str, str] = json.loads(done.stdout)
    for name, text in texts.items():
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(text)
    assert Path(lib, *PACKAGE.split("."), "undo", "guard.py").read_text() == (utils / "undo" / "guard.py").read_text()
    # a folder of no trial: it looks, and ends
    (tmp_path / "none").mkdir()
    subprocess.run([sys.executable, "-BEsS", str(lib), str(tmp_path / "none")], check=True)
