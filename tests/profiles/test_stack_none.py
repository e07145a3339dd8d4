"""`nodectl_stack: none`: nothing of torch is installed or expected, and what is set on the host is still held."""

import json

import pytest

from nodectl.common.resources import share_dir
from tests.conftest import Cli


@pytest.mark.parametrize("hardware", ["h100-8", "dgx-a100"])
def test_a_healthy_host_without_an_environment_is_healthy(nodectl: Cli, hardware: str) -> None:
    recording = str(share_dir() / "nodectl" / "data" / "recordings" / hardware)
    named = ("--stack", "none", "--hardware", hardware)
    done = nodectl("--output", "json", "--replay", recording, "health", *named, check=False)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert {"launcher", "torch"}.isdisjoint(finding["check"] for finding in findings)
    assert len({finding["check"] for finding in findings}) > 20
