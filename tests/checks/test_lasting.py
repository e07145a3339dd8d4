"""What a boot would undo: values that another file overrides, values in no file, files that were deleted."""

from dataclasses import replace
from pathlib import Path

from nodectl.checks.check import Subject
from nodectl.checks.judge import judge
from nodectl.facts.packages import GPU, GPU_RECORD, LIMITS, NIC, SERVICES, RoleFiles
from nodectl.facts.settings import BootValue, Sysctl, SysctlFiles
from nodectl.profiles.resolve import resolve
from tests.checks.table import UNREAD, Case

WANTED = resolve("unknown", "cpu", "article-20g", overrides={"nic": {"mtu": 9000}})
OURS = "/etc/sysctl.d/90-nodectl.conf"
RMEM = "net.ipv4.tcp_rmem"
LIVE = {key: Sysctl(key, setting.value) for key, setting in WANTED.tuning.sysctl.items()}
KEPT = SysctlFiles(
    {key.replace(".", "/"): BootValue(setting.value, OURS) for key, setting in WANTED.tuning.sysctl.items()}
)
LATER = SysctlFiles({**KEPT.values, "net/ipv4/tcp_rmem": BootValue("4096 87380 6291456", "/etc/sysctl.d/99-site.conf")})
SERVICE = ("/etc/systemd/system/nodectl-nic.service", "/opt/nodectl/lib/nic_hw.py")
ALL = RoleFiles(frozenset([*LIMITS, NIC, *SERVICE]), frozenset(["nodectl-nic.service"]), True)
NICS = {"nodectl_nics": ["ens1"]}


def without(path: str) -> RoleFiles:
    return replace(ALL, present=ALL.present - {path})


CASES = [
    Case("kernel_settings_boot", "ok", {"sysctl": LIVE, "sysctl_files": KEPT}, WANTED),
    Case("kernel_settings_boot", "warning", {"sysctl": LIVE, "sysctl_files": LATER}, WANTED, subject=RMEM),
    Case("kernel_settings_boot", "warning", {"sysctl": LIVE, "sysctl_files": SysctlFiles({})}, WANTED),
    Case("kernel_settings_boot", "unknown", {"sysctl": LIVE, "sysctl_files": UNREAD}, WANTED),
    Case(
        "kernel_settings_boot", "nothing",
        {"sysctl": {RMEM: Sysctl(RMEM, None, "absent")}, "sysctl_files": SysctlFiles({})}, WANTED,
    ),
    Case("role_files", "ok", {"role_files": ALL}, WANTED, NICS),
    *(
        Case("role_files", "warning", {"role_files": without(path)}, WANTED, NICS, subject=path)
        for path in (*LIMITS, NIC, *SERVICE)
    ),
    Case("role_files", "warning", {"role_files": replace(ALL, enabled=frozenset())}, WANTED, NICS, subject=SERVICE[0]),
    Case(
        "role_files", "warning", {"role_files": replace(ALL, present=ALL.present | {GPU_RECORD})}, WANTED, subject=GPU
    ),
    Case("role_files", "unknown", {"role_files": UNREAD}, WANTED),
]  # fmt: skip


def test_the_file_that_has_the_last_word_is_named() -> None:
    found = judge(Subject("n1", {"sysctl": LIVE, "sysctl_files": LATER}, WANTED, {}))
    (ours,) = [each for each in found if each.check == "kernel_settings_boot" and each.status.value == "warning"]
    assert "/etc/sysctl.d/99-site.conf" in ours.actual and ours.remedy.startswith(f"take {RMEM} out of")


def test_the_files_are_those_that_the_roles_write() -> None:
    root = Path(__file__).parents[2] / "roles"
    for role, paths in {
        "limits": LIMITS,
        "nic": (NIC, *SERVICE),
        "gpu_settings": (GPU, GPU_RECORD, *SERVICES[GPU]),
    }.items():
        defaults = (root / role / "defaults" / "main.yml").read_text()
        assert all(path in defaults for path in paths), role
