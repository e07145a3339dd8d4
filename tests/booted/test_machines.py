"""`nodectl provision` on emulated machines: a kernel of its own, so live settings, locked memory and modules are real.

No torch in them (importing it takes minutes on an emulated CPU), no GPU, and RDMA only in software.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.booted import snapshot
from tests.booted.conftest import Nodectl, Ran
from tests.booted.fleet import Fleet
from tests.booted.system import System

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(1800)]

NAMES = ("vm01", "vm02")
ONLY = ("--tags", "limits", "--tags", "kernel_settings", "--tags", "nccl_env", "--tags", "rdma")
OWN_RMEM_MAX = "67108864"
ARTICLE_RMEM_MAX = "16777216"


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The fleet after its first run."""

    fleet: Fleet
    inventory: str
    before: dict[str, dict[str, str]]
    first: Ran


@pytest.fixture(scope="module")
def provisioned(vms: Fleet, run_nodectl: Nodectl) -> Iterator[Provisioned]:
    """vm02 has a higher value of its own, from a file that is not nodectl's."""
    own = "/etc/sysctl.d/50-site.conf"
    vms["vm02"].run(f"echo 'net.core.rmem_max = {OWN_RMEM_MAX}' > {own} && sysctl -q -p {own}")
    before = {name: snapshot.take(vms[name]) for name in NAMES}
    inventory = vms.inventory(nodectl_tuning="article-20g", rdma_soft_roce=["eth0"])
    first = run_nodectl(inventory, "provision", "--yes", *ONLY)
    yield Provisioned(vms, inventory, before, first)


def value(system: System, key: str) -> str:
    """As the kernel shows it."""
    return " ".join(system.out(f"cat /proc/sys/{key.replace('.', '/')}").split())


def test_a_first_run_changes_and_finds_everything_settable(provisioned: Provisioned) -> None:
    assert provisioned.first.status == 0, str(provisioned.first)
    assert min(provisioned.first.changed.values()) > 5, str(provisioned.first)
    assert "not settable on this host" not in provisioned.first.said, "a machine of its own holds everything"


def values_stand(fleet: Fleet) -> None:
    """The article's, but for the one that was higher."""
    assert value(fleet["vm01"], "net.core.rmem_max") == ARTICLE_RMEM_MAX
    assert value(fleet["vm02"], "net.core.rmem_max") == OWN_RMEM_MAX
    for name in NAMES:
        assert value(fleet[name], "net.core.wmem_max") == ARTICLE_RMEM_MAX
        assert value(fleet[name], "net.ipv4.tcp_rmem") == f"4096 131072 {ARTICLE_RMEM_MAX}"
        # what a person's session and a unit can really lock, beyond the 8 MiB of a fresh system
        lock = "import mmap, ctypes; m = mmap.mmap(-1, 64 << 20); c = ctypes.CDLL(None, use_errno=True); "
        lock += "a = ctypes.addressof(ctypes.c_char.from_buffer(m)); print(c.mlock(ctypes.c_void_p(a), len(m)))"
        session = f"ulimit -Hl; ulimit -Sl; python3 -c '{lock}'; ulimit -Hn"
        assert fleet[name].out(session, login="auto").split() == ["unlimited", "unlimited", "0", "1048576"]
        unit = "systemd-run --quiet --wait --pipe sh -c 'ulimit -Hl; ulimit -Sl; ulimit -Hn'"
        assert fleet[name].out(unit).split() == ["unlimited", "unlimited", "1048576"]


def software_rdma_works(fleet: Fleet) -> None:
    """The module, the device, and its port as libibverbs sees it."""
    for name in NAMES:
        assert fleet[name].run("grep -q ^rdma_rxe /proc/modules", check=False).status == 0, name
        assert "PORT_ACTIVE" in fleet[name].out("ibv_devinfo -d rxe_eth0")


def test_live_settings_and_locked_memory_are_the_profiles(provisioned: Provisioned) -> None:
    values_stand(provisioned.fleet)


def test_the_rdma_role_brings_a_software_device(provisioned: Provisioned) -> None:
    software_rdma_works(provisioned.fleet)


def test_rdma_carries_data_between_the_machines(provisioned: Provisioned) -> None:
    fleet = provisioned.fleet
    test = "timeout 100 ib_write_bw -d rxe_eth0 -x 1 -n 200 -s 65536"
    server = f"systemd-run --quiet --unit=bw {test}"
    fleet["vm01"].run(server)
    fleet["vm01"].wait_for(lambda: ":18515 " in fleet["vm01"].out("ss -tln"), "listening for perftest", 60)
    answer = fleet["vm02"].out(f"{test} --report_gbits {fleet['vm01'].address}", timeout_s=120)
    row = answer.splitlines()[-2].split()
    assert row[:2] == ["65536", "200"] and float(row[3]) > 0, answer


def test_after_a_reboot_all_of_it_stands_and_a_second_run_changes_nothing(
    provisioned: Provisioned, run_nodectl: Nodectl
) -> None:
    for name in NAMES:
        provisioned.fleet[name].reboot(timeout_s=300)
    values_stand(provisioned.fleet)
    software_rdma_works(provisioned.fleet)
    second = run_nodectl(provisioned.inventory, "provision", "--yes", *ONLY)
    assert second.status == 0 and second.changed == dict.fromkeys(NAMES, 0), str(second)


def test_rollback_returns_everything_and_a_reboot_what_modules_left(
    provisioned: Provisioned, run_nodectl: Nodectl
) -> None:
    fleet = provisioned.fleet
    assert all(snapshot.differences(provisioned.before[name], snapshot.take(fleet[name])) for name in NAMES)
    back = run_nodectl(provisioned.inventory, "rollback", "--to", "start", "--yes")
    assert back.status == 0, str(back)
    for name in NAMES:
        left = snapshot.differences(provisioned.before[name], snapshot.take(fleet[name]))
        # modules that are loaded stay until the next boot, with the settings and the units that came with them
        assert [line for line in left if "was absent" not in line or not line.startswith(("value", "active"))] == [], (
            name
        )
        fleet[name].reboot(timeout_s=300)
        assert snapshot.differences(provisioned.before[name], snapshot.take(fleet[name])) == [], name
