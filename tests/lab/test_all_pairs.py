"""All pairs in rounds take the rounds' time and little more; each measurement says what its pair took."""

from __future__ import annotations

import json
import time

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

PROBE = ("--output", "json", "probe", "tcp", "--repetitions", "1")


def test_a_pair_says_what_it_took(nodectl: Cli, lab4: LabUnderTest) -> None:
    began = time.monotonic()
    done = nodectl("-i", lab4.inventory, "-l", ",".join(lab4.hosts[:2]), *PROBE, "--duration", "1")
    took_s = time.monotonic() - began
    there, back = (each["conditions"] for each in json.loads(done.stdout)["measurements"])
    assert there["wall_s"] == back["wall_s"] and 2 < there["wall_s"] < took_s
