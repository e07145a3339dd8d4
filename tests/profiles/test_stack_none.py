"""`nodectl_stack: none`: nothing of torch is installed or expected, and what is set on the host is still held."""

import json

import pytest
import yaml

from nodectl.common.resources import share_dir
from nodectl.errors import ProfileError
from nodectl.profiles.load import check_document
from nodectl.profiles.resolve import load_stacks
from nodectl.profiles.schema import Stack
from tests.conftest import Cli

_OF_TORCH = ("Python", "PyTorch", "Launcher")


@pytest.mark.parametrize("hardware", ["h100-8", "dgx-a100"])
def test_a_healthy_host_without_an_environment_is_healthy(nodectl: Cli, hardware: str) -> None:
    recording = str(share_dir() / "nodectl" / "data" / "recordings" / hardware)
    named = ("--stack", "none", "--hardware", hardware)
    done = nodectl("--output", "json", "--replay", recording, "health", *named, check=False)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert {"launcher", "torch"}.isdisjoint(finding["check"] for finding in findings)
    assert len({finding["check"] for finding in findings}) > 20


@pytest.mark.parametrize("playbook", ["provision.yml", "validate.yml"])
def test_no_play_brings_torch_to_a_host_without_it(playbook: str) -> None:
    plays = yaml.safe_load((share_dir() / "playbooks" / playbook).read_text(encoding="utf-8"))
    tasks = {task["name"]: task for play in plays for task in play["tasks"]}
    for name in _OF_TORCH:
        assert tasks[name]["when"].startswith("fleet.stack.torch is not none")


def test_gpus_are_set_also_where_the_stack_has_no_cuda() -> None:
    for playbook in ("tune.yml", "trial_on.yml", "validate.yml"):
        plays = yaml.safe_load((share_dir() / "playbooks" / playbook).read_text(encoding="utf-8"))
        named = [play["hosts"] for play in plays if any("GPUs" in task["name"] for task in play.get("tasks", ()))]
        assert named == ["nodectl_gpus"]


def test_nothing_of_torch_stands_in_a_stack_without_torch() -> None:
    assert load_stacks()["none"].requirements == ()
    for field in ({"nccl": "2.27.5"}, {"packages": {"numpy": "2.2.6"}}, {"cuda": "12.8"}):
        with pytest.raises(ProfileError, match="of no use to a stack without 'torch'"):
            check_document(Stack, {"description": "x", **field}, "here")
    with pytest.raises(ProfileError, match="it needs 'python' and 'index'"):
        check_document(Stack, {"description": "x", "torch": "2.9.1"}, "here")
