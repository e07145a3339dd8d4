"""After heal a host is what it was, to the byte; also where the fault never came to be, and where several stood."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.lab.faults import FAULTS, Scene, break_host, heal_hosts
from nodectl.lab.state import FaultRecord, LabFolder, with_fault
from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

_LAB = f"heal-{os.getpid()}"
# sums of large programs of this machine would take ten times as long as all else
_LOOK = """\
cd /
find etc/ssh etc/security etc/nccl.conf etc/machine-id etc/hosts etc/environment etc/profile.d root opt usr/local/bin \\
  var/lib/nodectl-lab run -xdev -type f \\( -size +1024k -printf '%s %T@ %i %p\\n' -o -exec md5sum {} + \\) \\
  2>/dev/null | sort
stat -c '%a %n' etc/machine-id etc/hosts etc/environment root/.bashrc
cat /proc/self/mounts /proc/sys/net/ipv4/tcp_rmem /sys/class/net/eth0/mtu
df --output=size,itotal /dev/shm
ss -ltnH | sort
date +%s
"""
# a full disk and a cut cable show elsewhere, a key and a hung sshd not in files; simulated kinds need other hosts
REAL = [name for name, fault in FAULTS.items() if name != "link-down" and not fault.simulated]
SEEN = [name for name in REAL if name not in ("disk-full", "sshd-dead", "loss", "slow-link", "mtu-hole", "slow-cpu")]


@pytest.fixture(scope="module")
def folder(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFolder]:
    """Two hosts, dressed."""
    home = tmp_path_factory.mktemp("heal")
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(home)})
    inventory = cli("lab", "up", "-n", "2", "--as", "dgx-a100", "--name", _LAB, "--disk", "256M").stdout.strip()
    folder = LabFolder(Path(inventory).parent)
    yield folder
    for kind in ("slow-cpu", "port-taken", "read-only", "inodes-full", "loss", "remap-failure", "sshd-dead"):
        break_host(folder, kind, "node02")
    hosts = folder.running().hosts
    cli("lab", "down", "--name", _LAB)
    # nothing of a lab stays, whatever stood on its hosts
    assert not folder.path.exists() and not any(host.up for host in hosts)
    assert str(folder.path) not in Path("/proc/self/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{folder.cgroup}"))


def scene_of(folder: LabFolder) -> Scene:
    state = folder.running()
    return Scene(folder, state, state.hosts[0])


_UNCHANGED: list[list[str]] = []


def as_it_is(folder: LabFolder) -> list[str]:
    """The host before a test: as the test before left it, where that one found no difference."""
    return _UNCHANGED.pop() if _UNCHANGED else looks(folder)


def verify_unchanged(folder: LabFolder, before: list[str]) -> None:
    assert looks(folder) == before
    _UNCHANGED.append(before)


def looks(folder: LabFolder) -> list[str]:
    """All that a fault could leave: files, mounts, settings, what listens, the cable's shape, the share of CPU."""
    scene = scene_of(folder)
    lines = scene.run(["sh", "-c", _LOOK]).splitlines()
    inside = ["nsenter", f"--net={folder.switch}", "tc", "qdisc", "show", "dev", "p0"]
    shape = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
    groups = Path(f"/proc/{scene.pid}/cgroup").read_text()
    offset_s = int(lines[-1]) - int(subprocess.check_output(["date", "+%s"]))
    return [*lines[:-1], shape, groups, f"clock {offset_s if abs(offset_s) > 2 else 0}"]


@pytest.mark.parametrize("kind", REAL)
def test_heal_leaves_nothing(folder: LabFolder, kind: str) -> None:
    before = as_it_is(folder)
    break_host(folder, kind, "node01")
    if kind in SEEN:
        assert looks(folder) != before
    assert [(fault.kind, fault.host) for fault in heal_hosts(folder, "node01")] == [(kind, "node01")]
    assert not folder.running().faults
    verify_unchanged(folder, before)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if at % 3 else []) for at, kind in enumerate(REAL)]
)
def test_heal_is_harmless_where_the_fault_never_came_to_be(folder: LabFolder, kind: str) -> None:
    """The launcher was killed between the journal and the deed."""
    before, scene = as_it_is(folder), scene_of(folder)
    record = FaultRecord(kind, "node01", FAULTS[kind].remember(scene))
    folder.write(with_fault(scene.state, record))
    heal_hosts(folder, "node01")
    verify_unchanged(folder, before)


def test_shapes_add_up_and_leave_one_by_one(folder: LabFolder) -> None:
    before = as_it_is(folder)
    break_host(folder, "loss", "node01")
    lossy = looks(folder)
    break_host(folder, "slow-link", "node01")
    assert looks(folder) != lossy
    heal_hosts(folder, "node01", "slow-link")
    assert [line for line in looks(folder) if "htb" in line] == [line for line in lossy if "htb" in line]
    heal_hosts(folder, "node01")
    verify_unchanged(folder, before)


def test_a_fault_that_cannot_be_leaves_the_host_as_it_was(folder: LabFolder) -> None:
    before, state = as_it_is(folder), folder.running()
    wired = folder.write(replace(state, link="wire"))
    try:
        with pytest.raises(Exception, match="shaped already"):
            break_host(folder, "loss", "node01")
        assert folder.running() == wired
    finally:
        folder.write(state)
    verify_unchanged(folder, before)
