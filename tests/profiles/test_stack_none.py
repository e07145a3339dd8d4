"""`nodectl_stack: none`: nothing of torch is installed or expected, and what is set on the host is still held."""

import json

import pytest
import yaml

from nodectl.common.resources import share_dir
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
