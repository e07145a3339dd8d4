"""A GPU's power limit on a lab host with a stand-in for nvidia-smi: set, taken back, and back after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.provision.conftest import Fleet
from tests.trials.arming.process import started

pytestmark = pytest.mark.lab

FOLDER, SMI = "/run/stand-in", "/usr/local/bin/nvidia-smi"
# one card, whose limit stays where it is put
STAND_IN = f"""#!/bin/sh
case "$*" in
*--query-gpu=*) echo "GPU-a, Disabled, Disabled, $(cat {FOLDER}/limit), 150.00, 600.00, [N/A], [N/A], 10501, 3105" ;;
*-pl*) shift 3; echo "${{1%.00}}.00" >{FOLDER}/limit ;;
esac
"""
LEASE_S, MARGIN_S = 6.0, 25.0


@pytest.fixture
def box(fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """A host whose profiles have a GPU, and its stand-in."""
    host = fleet("node01", nodectl_stack="cu128", nodectl_hardware="1 x rtx4090")
    write = f"mkdir -p {FOLDER}; echo 450.00 >{FOLDER}/limit; cat >{SMI} <<'END'\n{STAND_IN}END\nchmod 755 {SMI}"
    host.lab.ssh("node01", write)
    yield host
    host.lab.ssh("node01", f"rm -rf {FOLDER} {SMI}")


def limit(host: Fleet) -> str:
    return host.lab.ssh("node01", f"cat {FOLDER}/limit").strip()


def test_a_limit_of_the_tuning_is_set_once_and_goes_with_a_rollback(box: Fleet) -> None:
    wanted = ("-e", '{"nodectl_overrides": {"gpu": {"power_limit_w": 300}}}', "provision", "--tags", "gpu_settings")
    assert box.changed(*wanted) != {0} and limit(box) == "300.00"
    assert box.changed(*wanted) == {0}
    box.run("rollback")
    assert limit(box) == "450.00"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_limit_that_is_tried_goes_back_though_nodectl_is_killed(box: Fleet) -> None:
    with started(box.inventory, LEASE_S, env=box.cli.env) as trial:
        assert trial.wait("armed")["findings"] == []
        assert trial.on("limit") == [] and limit(box) == "300.00"
        trial.process.kill()
        until = time.monotonic() + LEASE_S + MARGIN_S
        while limit(box) != "450.00":
            assert time.monotonic() < until
            time.sleep(0.5)
    box.lab.ssh("node01", "rm -rf /var/lib/nodectl/trials")


def test_a_limit_that_the_card_cannot_have_is_refused_before_anything_changes(box: Fleet) -> None:
    wanted = ("-e", '{"nodectl_overrides": {"gpu": {"power_limit_w": 900}}}', "provision", "--tags", "gpu_settings")
    box.run(*wanted, status=1)
    assert limit(box) == "450.00"
