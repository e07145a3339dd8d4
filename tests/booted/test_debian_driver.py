"""Booted Debian 12 and 13 with Debian's own driver: apt, DKMS and modprobe are real; there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.node_paths import LAB_SHARE
from tests.booted import snapshot
from tests.booted.conftest import STATE, Nodectl, Ran
from tests.booted.fleet import Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers
from tests.booted.sources import distribution
from tests.booted.test_health_timer import LIMITS
from tests.booted.test_nvidia_packages import RECORDED_GPUS
from tests.roles.test_alone import play, without_nodectl  # noqa: F401  a fixture

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(4000)]

BRANCHES = {"bookworm": "535", "trixie": "550"}
DEBIANS = {"nvidia_driver_source": "distribution"}
# NVIDIA's repository is out of reach, and without a card no module is loaded
PROVISION = ("provision", "--yes", "--tags", "nvidia_driver", "--skip-tags", "nvidia_repository")
UNLOADED = ("gpu_modules", "driver_loaded", "driver_build", "managed_driver", "versions")
KNOWN = [{"check": check, "until": "2999-12-31", "why": "no GPU is there"} for check in UNLOADED]


class Driven:
    """A container, before and after its first run, in which DKMS works for minutes."""

    def __init__(self, release: str, fleet: Fleet, nodectl: Nodectl) -> None:
        self.fleet, self.system, self.run, self.branch = fleet, fleet["gpu01"], nodectl, BRANCHES[release]
        self.before = snapshot.take(self.system)
        self.first = self.nodectl(*PROVISION, nodectl_driver="manage", **DEBIANS)

    def inventory(self, **variables: Any) -> str:
        """A stack with the branch that the release has."""
        stack = {"os": ["debian-12", "debian-13"], "driver": {"branch": self.branch, "flavour": "proprietary"}}
        profiles = {"nodectl_hardware": "a100-pcie-8", "nodectl_stack": "cu124", "nodectl_overrides": {"stack": stack}}
        recorded = {"nodectl_recorded_look": {"gpus": RECORDED_GPUS}, "nodectl_health": {"accept": KNOWN}}
        return self.fleet.inventory(**{**profiles, **recorded, **variables})

    def nodectl(self, *command: str, **variables: Any) -> Ran:
        """Run it for this inventory."""
        return self.run(self.inventory(**variables), *command)


@pytest.fixture(scope="module", params=sorted(BRANCHES))
def driven(
    request: pytest.FixtureRequest, booted_cache: None, lab_share: Path, run_nodectl: Nodectl
) -> Iterator[Driven]:
    """One of each release."""
    skip_unless_possible(CONTAINER_PROGRAMS, "booted containers")
    if distribution() != "debian":
        pytest.skip(f"Debian is made from apt sources of Debian, this machine has those of {distribution()}")
    with containers(STATE / "booted", ("gpu01",), {lab_share: LAB_SHARE}, request.param, driver=True) as fleet:
        yield Driven(request.param, fleet, run_nodectl)


def test_the_distributions_driver_is_built_held_and_complete(driven: Driven) -> None:
    assert driven.first.status == 0, str(driven.first)
    held = set(driven.system.out("apt-mark showhold").split())
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= held, held
    assert driven.system.out("ls /lib/modules/*/updates/dkms/nvidia-current.ko*")
    second = driven.nodectl(*PROVISION, nodectl_driver="manage", **DEBIANS)
    assert second.status == 0 and set(second.changed.values()) == {0}, str(second)


@pytest.mark.usefixtures("without_nodectl")
def test_the_role_alone_accepts_what_it_installs(driven: Driven, tmp_path: Path, cli_env: Mapping[str, str]) -> None:
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", driven.inventory(), str(tmp_path / "p.yml")]
    named = {"nvidia_driver_branch": driven.branch, "nvidia_driver_packages": ["nvidia-kernel-dkms"]}
    other = {"nvidia_driver_branch": "580"}
    for variables, said in (DEBIANS, "changed=0"), (named, "changed=0"), (other, "another source than NVIDIA's"):
        (tmp_path / "p.yml").write_text(play("nvidia_driver", **variables))
        done = subprocess.run(argv, capture_output=True, text=True, env=dict(cli_env), check=False)
        assert said in done.stdout and (done.returncode == 0) == (variables != other), done.stdout + done.stderr


def test_it_is_kept_and_not_replaced_by_nvidias(driven: Driven) -> None:
    kept = driven.nodectl(*PROVISION)
    assert kept.status == 0 and set(kept.changed.values()) == {0}, str(kept)
    refused = driven.nodectl(*PROVISION, nodectl_driver="manage")
    assert refused.status != 0 and "another source than NVIDIA's repository" in str(refused), str(refused)


def test_health_and_doctor_know_debians_names(driven: Driven) -> None:
    driven.system.run("ln -s $(ls /lib/modules) /lib/modules/$(uname -r)")  # as if that kernel ran
    health = driven.nodectl("health", nodectl_health={})
    version = driven.system.out("modinfo -F version nvidia-current; rm /lib/modules/$(uname -r)")
    rows = [row for row in health.document["findings"] if row["check"] in UNLOADED]
    actual = {(row["check"], row.get("subject") or ""): row["actual"] for row in rows}
    assert "couldn't communicate with the NVIDIA driver" in actual["driver_loaded", ""], rows
    assert actual["driver_build", "DKMS"].startswith(f"none of {version}"), rows
    assert actual["driver_build", "next boot"] == "there", rows
    assert not [row for row in rows if "--tags nvidia_driver" in row["remedy"]], rows
    doctor = driven.nodectl("doctor")
    assert doctor.status in (0, 1), str(doctor)


def test_rollback_keeps_the_driver_unless_packages_are_asked_for(driven: Driven) -> None:
    back = driven.nodectl("rollback", "--to", "start", "--yes")
    state = driven.system.out("dpkg -s nvidia-kernel-dkms | grep ^Status")
    assert back.status == 0 and state.endswith("installed"), str(back)
    rest = driven.nodectl("rollback", "--to", "start", "--yes", "--packages")
    assert rest.status == 0, str(rest)
    assert snapshot.differences(driven.before, snapshot.take(driven.system)) == []


def test_all_else_is_provisioned_once_judged_and_rolled_back_to_the_byte(driven: Driven) -> None:
    profiles: dict[str, Any] = {"nodectl_tuning": "article-20g", "nodectl_overrides": {"limits": LIMITS}}
    inventory = driven.fleet.inventory(**profiles)
    # the lab's wheels are for the Python of this machine's release, so nothing of PyTorch
    left_out = [word for role in ("pytorch", "deepspeed", "launcher") for word in ("--skip-tags", role)]
    runs = [driven.run(inventory, "provision", "--yes", *left_out) for _ in range(2)]
    first, second = (sum(ran.changed.values()) for ran in runs)
    assert [ran.status for ran in runs] == [0, 0] and first > 3 and second == 0, str(runs)
    health = driven.run(inventory, "health")
    units = {row["subject"]: row["status"] for row in health.document["findings"] if row["check"] == "unit_limits"}
    assert units == {"memlock": "ok", "nofile": "ok"}, "a unit begins with 1024 files, and may raise them"
    assert len(snapshot.differences(driven.before, snapshot.take(driven.system))) > 5
    assert driven.run(inventory, "rollback", "--to", "start", "--yes").status == 0
    assert snapshot.differences(driven.before, snapshot.take(driven.system)) == []
