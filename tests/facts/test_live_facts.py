"""Facts of live hosts alone: a fresh login, the programs that keep the clock, the queues of the interfaces."""

import platform
import subprocess
from pathlib import Path

import pytest

from nodectl.facts.catalogue import commands_for, facts_named
from nodectl.facts.network import NicSetup
from nodectl.facts.packages import Tree
from nodectl.facts.services import TimeService
from nodectl.facts.settings import LoginLimits
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

LOGIN = """user root
login 8192 unlimited 1024 4096 8191 unlimited
session unlimited unlimited 1048576 1048576 unlimited unlimited
pam no
"""


SCRIPTS = [
    *("login_limits", "nic_setup", "time_service", "launcher", "packages", "driver_build", "health_timer"),
    *("nccl_tests", "nvidia_repository"),
]


@pytest.mark.parametrize("subject", SCRIPTS)
def test_its_script_runs_here_under_a_posix_shell(subject: str) -> None:
    for command in commands_for(Host("a", "a"), facts_named(subject)):
        assert subprocess.run(["dash", "-n", "-c", command.argv[2]], check=False).returncode == 0, command.key
        done = subprocess.run(command.argv, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode in (0, 3), done.stderr


def test_the_lower_of_soft_and_hard_of_a_fresh_login_counts() -> None:
    assert fact("login_limits", login_limits=LOGIN) == LoginLimits("root", "8192", "1024", "8191", uses_pam=False)
    without = fact(
        "login_limits", login_limits=LOGIN.replace("login 8192 unlimited 1024 4096 8191 unlimited", "login ")
    )
    assert without.memlock is None
    assert fact("login_limits", login_limits=3) == Unread("absent", "not asked by root, or no runuser")


@pytest.mark.parametrize(
    ("words", "services"),
    [
        ("service chronyd\n", ("chrony",)),
        ("service systemd-timesyn\nservice ntpd\n", ("ntp", "systemd-timesyncd")),
        ("", ()),
    ],
)
def test_services_that_keep_the_clock(words: str, services: tuple[str, ...]) -> None:
    assert fact("time_service", time_service=f"own\n{words}") == TimeService(services, own_clock=True)
    assert fact("time_service", time_service=f"shared\n{words}") == TimeService(services, own_clock=False)


@pytest.mark.parametrize("name", ["nvidia", "nvidia-srv", "nvidia-current", "nvidia-current-open", "nvidia-tesla-470"])
def test_every_tree_of_dkms_is_told_with_the_end_of_its_failed_build(tmp_path: Path, name: str) -> None:
    kernel, dkms = platform.release(), tmp_path / name
    (tmp_path / "nvidia-fs" / "2.17.5").mkdir(parents=True)  # no driver
    (built := dkms / "535.54.03" / kernel / "x86_64" / "module").mkdir(parents=True)
    for module in ("nvidia.ko", "nvidia-uvm.ko.zst"):
        (built / module).touch()
    (failed := dkms / "535.216.01" / "build").mkdir(parents=True)
    (failed / "make.log").write_text("one\ntwo\n\n\tthree\nfour\n")
    (command,) = commands_for(Host("a", "a"), facts_named("driver_build"))
    script = command.argv[2].replace("/var/lib/dkms", str(tmp_path)).replace("/lib/modules", f"{tmp_path}/none")
    told = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True).stdout
    build = fact("driver_build", driver_build=told)
    log = f"{failed / 'make.log'} ends: two  three four "
    assert build.trees == (Tree("535.216.01", 0, log), Tree("535.54.03", 2, "")) and build.kernel == kernel
    nothing = "neither DKMS nor EFI has anything to tell, and no kernel has a module of the driver"
    assert fact("driver_build", driver_build=3) == Unread("absent", nothing)


@pytest.mark.parametrize(
    ("boot", "after"),
    [
        (
            tuple(f"vmlinuz-6.8.0-{kernel}" for kernel in ("45-generic", "100-generic", "100-generic.old")),
            "6.8.0-100-generic",
        ),
        (("vmlinuz-5.14.0-427.el9.x86_64", "vmlinuz-0-rescue-0123"), "5.14.0-427.el9.x86_64"),
        ((), ""),
    ],
)
def test_kernels_with_a_module_and_the_one_that_boots_next(tmp_path: Path, boot: tuple[str, ...], after: str) -> None:
    for kernel, module in (
        ("6.8.0-45-generic", "kernel/nvidia-580srv-open/nvidia.ko.zst: kernel/drivers/video/backlight.ko"),
        ("6.1.0-9-amd64", "updates/dkms/nvidia-current-open.ko:"),
        ("6.8.0-100-generic", "kernel/drivers/net/forcedeth-nvidia.ko:\nkernel/drivers/usb/nvidia-typec.ko:"),
    ):
        (tmp_path / "modules" / kernel).mkdir(parents=True)
        (tmp_path / "modules" / kernel / "modules.dep").write_text(f"kernel/fs/fat.ko:\n{module}\n")
    (tmp_path / "boot").mkdir()
    for name in boot:
        (tmp_path / "boot" / name).touch()
    (command,) = commands_for(Host("a", "a"), facts_named("driver_build"))
    script = command.argv[2].replace("/lib/modules", f"{tmp_path}/modules").replace("/boot/", f"{tmp_path}/boot/")
    done = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True)
    build = fact("driver_build", driver_build=done.stdout)
    assert (build.with_module, build.next_kernel) == (("6.1.0-9-amd64", "6.8.0-45-generic"), after) and not done.stderr


QUEUES = recorded_text("live-facts-queues.txt")


def test_rings_and_interrupts_are_read_by_interface() -> None:
    setup: NicSetup = fact("nic_setup", nic_queues=QUEUES, nic_boot='active\n{"mtu": 9000}\n')
    nic = setup.queues["ens1f0np0"]
    assert (nic.rings_max, nic.rings) == ({"rx": 8192, "tx": 4096}, {"rx": 1024, "tx": 4096})
    assert nic.local_cpus == "0-15,32-47" and nic.interrupts == {"101": "0", "102": "0-63"}
    other = setup.queues["eno1"]
    assert (other.local_cpus, other.rings_max, other.interrupts) == ("", {}, {})
    assert setup.balanced and setup.boot == {"mtu": 9000}
