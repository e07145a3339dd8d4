"""A fleet's own profile beside its inventory decides what a probe's figure is held against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

PROFILE = """
description: "what the hosts of a test should reach"
gpus: 0
floors:
  - {probe: latency, value: 0.5, unit: us, tolerance_percent: 10, source: "a test's"}
"""


def test_a_floor_of_the_fleet_s_own(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    (tmp_path / "profiles/hardware").mkdir(parents=True)
    (tmp_path / "profiles/hardware/own.yml").write_text(PROFILE)
    text = Path(lab4.inventory).read_text()
    assert "lab-cpu" in text
    (tmp_path / "hosts.yml").write_text(text.replace("lab-cpu", "own"))
    options = ("-l", ",".join(lab4.hosts[:2]), "--duration", "0.05", "--repetitions", "1")
    args = ("-i", str(tmp_path / "hosts.yml"), "--output", "json", "probe", "latency", *options)
    done = nodectl(*args, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [each["expected"] for each in found["measurements"]] == [0.5] * 2
    assert {each["conditions"]["reference"] for each in found["measurements"]} == {"own: a test's"}
    assert [(each["status"], each["kind"]) for each in found["findings"]] == [("failed", "")] * 2
    assert all("at most 0.5 us (own)" in each["expected"] for each in found["findings"])
