"""`nodectl health` where nvidia-smi of one host never ends."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = pytest.mark.lab
SMI = "/usr/local/bin/nvidia-smi"
# what changes from look to look on a machine that others use, too
RESTLESS = {"load", "processes", "clock", "memory"}


@pytest.fixture
def hung(lab4: LabUnderTest) -> Iterator[str]:
    host = lab4.hosts[1]
    # not even TERM ends it
    text = "#!/bin/sh\\ntrap : TERM\\nwhile :; do sleep 9; done\\n"
    lab4.ssh(host, f"mkdir -p {SMI.rpartition('/')[0]}; printf '{text}' >{SMI}; chmod +x {SMI}")
    yield host
    lab4.ssh(host, f"rm -f {SMI}")


def looked(nodectl: Cli, lab4: LabUnderTest) -> set[tuple[str, str, str, str]]:
    done = nodectl("-i", lab4.inventory, "health", "--output", "json", "--hardware", "dgx-a100", check=False)
    findings = json.loads(done.stdout)["findings"]
    return {(f["host"], f["check"], f["subject"], f["status"]) for f in findings if f["check"] not in RESTLESS}


@pytest.mark.slow
def test_the_look_ends_in_30_s_with_one_finding_more(nodectl: Cli, lab4: LabUnderTest, hung: str) -> None:
    began = time.monotonic()
    ill = looked(nodectl, lab4)
    took_s = time.monotonic() - began
    lab4.ssh(hung, f"rm -f {SMI}")
    began = time.monotonic()
    well = looked(nodectl, lab4)
    # 30 s; on a machine that is busy with other things, what it takes with no hung tool and what one is waited for
    assert took_s < max(30, time.monotonic() - began + 20)
    assert {found for found in ill if found[1] == "hung"} == {(hung, "hung", "nvidia-smi", "unknown")}
    assert {found for found in ill - well if found[0] != hung} == set()
    # a missing nvidia-smi is told by checks of the GPUs; nothing else is another on the host
    assert {found for found in ill - well if found[0] == hung} == {(hung, "hung", "nvidia-smi", "unknown")}
    looks_at_gpus = ("gpu", "nvlink", "driver", "p2p", "fleet_gpu", "fleet_driver")
    assert [found for found in well - ill if not found[1].startswith(looks_at_gpus)] == []
