"""A GPU's power limit on a lab host with the real nvidia-smi, or a stand-in for it: set, restored, refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.lab.base import write_file
from nodectl.lab.composed import host_of
from nodectl.lab.nvml import LIBRARY, STATE, programs, real_nvidia_smi, state_of
from tests.provision.conftest import Fleet
from tests.trials.arming.process import started

# each needs several runs of provision: a minute in all
pytestmark = [pytest.mark.lab, pytest.mark.slow]

FOLDER, SMI = "/run/stand-in", "/usr/local/bin/nvidia-smi"
# one card, whose limit stays where it is put
STAND_IN = f"""#!/bin/sh
case "$*" in
*--query-gpu=*) echo "GPU-a, 0, Disabled, Disabled, $(cat {FOLDER}/limit), 150.00, 600.00{", [N/A]" * 8}" ;;
*-pl*) shift 3; echo "${{1%.00}}.00" >{FOLDER}/limit ;;
esac
"""
LEASE_S, MARGIN_S = 6.0, 25.0


@pytest.fixture
def box(fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """A host whose profiles have a GPU, and its nvidia-smi."""
    host = fleet("node01", nodectl_stack="cu128", nodectl_hardware="1 x rtx4090")
    for path, (content, mode) in (real_nvidia_smi(state_of(host_of("1 x rtx4090"))) if programs() else {}).items():
        write_file(root_of(host) / path, content, mode)
    write = f"mkdir -p {FOLDER}; echo 450.00 >{FOLDER}/limit; cat >{SMI} <<'END'\n{STAND_IN}END\nchmod 755 {SMI}"
    if not programs():
        host.lab.ssh("node01", write)
    yield host
    host.lab.ssh("node01", f"rm -rf {FOLDER} {SMI} /usr/lib/{LIBRARY} /{STATE}")


def root_of(host: Fleet) -> Path:
    return Path(f"/proc/{host.lab.status['hosts'][0]['pid']}/root")


def limit(host: Fleet) -> str:
    query = "--query-gpu=uuid,index,persistence_mode,display_active,power.limit --format=csv,noheader,nounits"
    return host.lab.ssh("node01", f"nvidia-smi {query}").split(", ")[4].strip()


def test_a_limit_of_the_tuning_is_set_once_and_goes_with_a_rollback(box: Fleet) -> None:
    wanted = ("-e", '{"nodectl_overrides": {"gpu": {"power_limit_w": 300}}}', "provision", "--tags", "gpu_settings")
    assert box.changed(*wanted) != {0} and limit(box) == "300.00"
    assert box.changed(*wanted) == {0}
    box.run("rollback")
    assert limit(box) == "450.00"


@pytest.mark.timeout(300)
def test_a_limit_that_is_tried_goes_back_though_nodectl_is_killed(box: Fleet) -> None:
    profile = Path(box.inventory).parent / "profiles" / "tuning" / "limit.yml"
    profile.parent.mkdir(parents=True)
    profile.write_text("description: tried\ngpu: {power_limit_w: {value: 300, why: tried}}\n")
    with started(box.inventory, LEASE_S, env=box.cli.env) as trial:
        assert trial.wait("armed")["findings"] == []
        assert trial.on("limit") == [] and limit(box) == "300.00"
        trial.process.kill()
        until = time.monotonic() + 2 * LEASE_S + MARGIN_S
        while limit(box) != "450.00":
            assert time.monotonic() < until
            time.sleep(0.5)


def test_a_limit_that_the_card_cannot_have_is_refused_before_anything_changes(box: Fleet) -> None:
    wanted = ("-e", '{"nodectl_overrides": {"gpu": {"power_limit_w": 900}}}', "provision", "--tags", "gpu_settings")
    box.run(*wanted, status=1)
    assert limit(box) == "450.00"


@pytest.mark.skipif(not programs(), reason="no real nvidia-smi: run `make nvidia-smi`")
def test_a_limit_that_the_driver_refuses_fails_with_its_reason(box: Fleet) -> None:
    state = root_of(box) / STATE
    state.write_text("0 SetPowerManagementLimit !3\n" + state.read_text())
    wanted = ("-e", '{"nodectl_overrides": {"gpu": {"power_limit_w": 300}}}', "provision", "--tags", "gpu_settings")
    assert "not supported" in str(box.run(*wanted, status=1))
    assert limit(box) == "450.00"
