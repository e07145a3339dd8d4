"""NVIDIA's layers on booted Debian, from a local apt repository of empty packages: apt, holds and reboots are real.

There is no GPU and no driver here: what was installed works on nothing, and no test of this file says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.common.node_paths import LAB_SHARE
from tests.apt_repo import build
from tests.booted import snapshot
from tests.booted.conftest import STATE, Nodectl, Ran
from tests.booted.fleet import Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers
from tests.booted.system import System

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(900)]

MOUNT = "/srv/nvidia"
NAMES = ("gpu01", "gpu02")
# no wheels of a CUDA build are at hand, and what stands on them would only repeat that
SKIPPED = [word for tag in ("python", "pytorch", "launcher", "nccl_tests") for word in ("--skip-tags", tag)]

# A100 80 GB PCIe, as node_look finds them in sysfs
RECORDED_GPUS = [{"address": f"0000:{slot:02x}:00.0", "device": "0x20b5", "numa_node": 0} for slot in range(1, 9)]


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The fleet after its first run."""

    fleet: Fleet
    inventory: str
    before: dict[str, dict[str, str]]
    boots: dict[str, str]
    first: Ran


@pytest.fixture(scope="module")
def provisioned(
    booted_cache: None, lab_share: Path, run_nodectl: Nodectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Provisioned]:
    """Two containers that see the repository as a folder."""
    skip_unless_possible(CONTAINER_PROGRAMS | {"gpg": "gnupg"}, "booted containers with a signed repository")
    folder = tmp_path_factory.mktemp("nvidia")
    repository = build(folder / "repository", ["debian12"])
    folders = {lab_share: LAB_SHARE, repository.base_url_path: MOUNT}
    with containers(STATE / "booted", NAMES, folders) as fleet:
        inventory = fleet.inventory(
            nodectl_hardware="a100-pcie-8",
            nodectl_stack="cu128",
            nodectl_driver="manage",
            # without a GPU on the bus no driver is worth a reboot: the eight cards are recorded, and said to be
            nodectl_recorded_look={"gpus": RECORDED_GPUS},
            # which would have the modules loaded, too
            nodectl_health={"accept": [{"check": "gpu_modules", "until": "2999-12-31", "why": "no GPU is there"}]},
            dcgm_exporter_packages=["datacenter-gpu-manager-exporter"],
            container_toolkit_packages=["nvidia-container-toolkit"],
            # it is not, and the stand-in for DCGM's engine needs none
            _dcgm_driver_loaded=True,
            _dcgm_exporter_driver_loaded=True,
            nvidia_repo_baseurl=f"file://{MOUNT}",
            nvidia_repo_keyring=str(repository.key_file),
        )
        before = {name: snapshot.take(fleet[name]) for name in NAMES}
        boots = {name: fleet[name].boot_id() for name in NAMES}
        first = run_nodectl(inventory, "provision", "--yes", "--allow-reboot", *SKIPPED)
        yield Provisioned(fleet, inventory, before, boots, first)


def installed(system: System) -> dict[str, str]:
    """NVIDIA's packages that dpkg has, with their versions."""
    lines = system.out("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'").splitlines()
    # installed, or installed and held
    rows = (line.split() for line in lines if line.split()[-1] in ("ii", "hi"))
    return {name: version for name, version, _ in rows if name.startswith(("cuda", "nvidia", "libcudnn", "libnccl"))}


def test_the_layers_are_installed_pinned_and_held_without_a_gpu(provisioned: Provisioned) -> None:
    assert provisioned.first.status == 0, str(provisioned.first)
    for name in NAMES:
        found = installed(provisioned.fleet[name])
        assert found["cuda-toolkit-12-8"] == "12.8.1-1", found
        assert found["libcudnn9-cuda-12"] == "9.10.2.21-1", found
        assert found["nvidia-open-580"].startswith("580."), found
        held = set(provisioned.fleet[name].out("apt-mark showhold").split())
        assert {"nvidia-open-580", "libcudnn9-cuda-12", "cuda-toolkit-12-8"} <= held, held


def test_a_change_of_driver_packages_rebooted_each_host_where_it_was_allowed(provisioned: Provisioned) -> None:
    for name in NAMES:
        assert provisioned.fleet[name].boot_id() != provisioned.boots[name], str(provisioned.first)


def test_each_start_of_dcgms_engine_sets_its_watches_and_the_exporter_asks_it(provisioned: Provisioned) -> None:
    """Engine, dcgmi and exporter are the repository's stand-ins; systemd is real."""
    system = provisioned.fleet["gpu01"]

    def watched() -> bool:
        return system.run("cat /run/dcgm-watches", check=False).out == "health --group g --set a"

    system.wait_for(watched, "watches after the boot", 60)
    for end in ("restart", "kill --signal=ABRT"):
        system.run(f"rm /run/dcgm-watches && systemctl {end} nvidia-dcgm")
        system.wait_for(watched, f"watches after `systemctl {end}`", 60)
    asked = "gpu01 --collectors /etc/dcgm-exporter/default-counters.csv --address 127.0.0.1:9400"
    assert system.out("cat /run/dcgm-exporter").strip() == f"{asked} --remote-hostengine-info localhost:5555"
    states = system.out("systemctl is-enabled nvidia-dcgm-exporter nvidia-cdi-refresh.path nvidia-cdi-refresh.service")
    assert states.split() == ["enabled"] * 3


def test_a_second_run_and_check_change_nothing_and_reboot_nothing(
    provisioned: Provisioned, run_nodectl: Nodectl
) -> None:
    boots = {name: provisioned.fleet[name].boot_id() for name in NAMES}
    for options in (("--check",), ("--yes", "--allow-reboot")):
        again = run_nodectl(provisioned.inventory, "provision", *options, *SKIPPED)
        assert again.status == 0 and again.changed == dict.fromkeys(NAMES, 0), str(again)
    assert {name: provisioned.fleet[name].boot_id() for name in NAMES} == boots


def test_an_upgrade_of_the_whole_system_leaves_the_layers_alone(provisioned: Provisioned) -> None:
    system = provisioned.fleet["gpu01"]
    before = installed(system)
    system.run("DEBIAN_FRONTEND=noninteractive apt-get -qq update && apt-get -qq -y dist-upgrade", timeout_s=240)
    assert installed(system) == before


def test_rollback_takes_all_but_the_driver_and_with_packages_the_driver_too(
    provisioned: Provisioned, run_nodectl: Nodectl
) -> None:
    fleet = provisioned.fleet
    back = run_nodectl(provisioned.inventory, "rollback", "--to", "start", "--yes")
    assert back.status == 0, str(back)
    left = installed(fleet["gpu01"])
    assert "nvidia-open-580" in left and "libcudnn9-cuda-12" not in left, left
    rest = run_nodectl(provisioned.inventory, "rollback", "--to", "start", "--yes", "--packages")
    assert rest.status == 0, str(rest)
    for name in NAMES:
        assert snapshot.differences(provisioned.before[name], snapshot.take(fleet[name])) == [], name
