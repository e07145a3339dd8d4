"""Set exactly or never lower, go back to what was, and say what a kernel cannot hold: on a folder, and on lab hosts."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from nodectl.checks.kernel.settings import is_held
from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest
from tests.roles.conftest import Play
from tests.roles.run_module import run_module

RMEM, WMEM, CEILING = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.core.rmem_max"
ARTICLE = [
    {"key": RMEM, "value": "4096 87380 16777216", "never_lower": True},
    {"key": WMEM, "value": "4096 65536 16777216", "never_lower": True},
    {"key": CEILING, "value": "16777216", "never_lower": True},
]
DEFAULTS = {RMEM: "4096\t131072\t6291456\n", WMEM: "4096\t16384\t4194304\n"}


class Kernel:
    """A folder that looks like /proc/sys, and the module run on it as Ansible runs it."""

    def __init__(self, folder: Path, values: dict[str, str]) -> None:
        self.folder, self.root, self.file = folder, folder / "sys", folder / "etc" / "90-nodectl.conf"
        for key, value in values.items():
            self.set(key, value)

    def path(self, key: str) -> Path:
        return self.root / key.replace(".", "/")

    def set(self, key: str, value: str) -> None:
        self.path(key).parent.mkdir(parents=True, exist_ok=True)
        self.path(key).write_text(value)

    def get(self, key: str) -> str:
        return " ".join(self.path(key).read_text().split())

    def run(self, settings: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        arguments = {"settings": settings, "file": str(self.file), "record": str(self.folder / "record.json")}
        arguments |= {"root": str(self.root)}
        check = bool(options.pop("check", False))
        module = "plugins/modules/kernel_settings.py"
        return run_module(module, arguments | options, folder=self.folder, check=check)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, DEFAULTS)


def test_a_key_is_one_by_either_spelling(kernel: Kernel) -> None:
    kernel.set("net.ipv4.tcp_fin_timeout", "60")
    for key, value in (("net/ipv4/tcp_fin_timeout", "31"), ("net.ipv4.tcp_fin_timeout", "32")):
        assert kernel.run([{"key": key, "value": value}])["changed"]
        assert kernel.get("net.ipv4.tcp_fin_timeout") == value
        assert f"net.ipv4.tcp_fin_timeout = {value}" in kernel.file.read_text()
    twice = [{"key": "net/ipv4/tcp_fin_timeout", "value": "33"}, {"key": "net.ipv4.tcp_fin_timeout", "value": "34"}]
    refused = kernel.run(twice)
    assert refused["failed"] and "net.ipv4.tcp_fin_timeout: it stands twice" in refused["msg"]
    kernel.run([])
    assert kernel.get("net.ipv4.tcp_fin_timeout") == "60"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("net.ipv4.conf.*.rp_filter", "it is a pattern"),
        ("net/ipv4/conf/eth[01]/rp_filter", "it is a pattern"),
        ("net.ipv4", "it is a folder of settings"),
        ("net/../../record", "it is no path below /proc/sys"),
        ("net.ipv4.", "it is no path below /proc/sys"),
        ("net.ipv4.a = 1", "a name has neither blanks"),
    ],
)
def test_what_names_no_one_setting_is_refused_before_anything_is_written(kernel: Kernel, key: str, reason: str) -> None:
    refused = kernel.run([{"key": key, "value": "1"}, *ARTICLE[:2]])
    assert refused["failed"] and f" is no kernel setting: {reason}" in refused["msg"], refused
    assert "nothing was changed" in refused["msg"] and not kernel.file.exists()
    assert {name: kernel.path(name).read_text() for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("present", "wanted", "never_lower", "effective"),
    [
        ("4096 131072 6291456", "4096 87380 16777216", True, "4096 131072 16777216"),
        ("4096 131072 33554432", "4096 87380 16777216", True, "4096 131072 33554432"),
        ("33554432", "16777216", True, "33554432"),
        ("60", "10", False, "10"),
        ("15", "30", False, "30"),
        ("4096 131072  33554432", "4096\t87380 16777216", False, "4096 87380 16777216"),
        ("cubic", "bbr", True, "bbr"),
        ("1 2", "3", True, "3"),
        ("-1", "4", True, "4"),
    ],
)
def test_each_number_is_only_raised_where_the_setting_says_so(
    utils: Callable[[str], ModuleType], present: str, wanted: str, never_lower: bool, effective: str
) -> None:
    values = utils("kernel_values")
    assert values.raised(present, wanted, never_lower) == effective
    assert values.is_held(effective, wanted, never_lower) and is_held(effective, wanted, never_lower)
    assert values.is_held(present, wanted, never_lower) is (" ".join(present.split()) == effective)


@pytest.mark.parametrize(
    ("key", "folder", "first", "kind"),
    [
        ("net.ipv4.nosuchkey", True, True, "unknown"),
        ("net.core.nosuchkey", True, False, "unknown"),
        ("net.core.netdev_max_backlog", True, False, "hidden"),
        ("net.ipv4.tcp_mem", True, False, "hidden"),
        ("net.ipv4.tcp_mem", True, True, "unknown"),
        ("kernel.numa_balancing", True, True, "hidden"),
        ("nosuch.key", False, True, "unknown"),
        ("net.bridge.bridge-nf-call-iptables", False, True, "later"),
        ("net.netfilter.nf_conntrack_max", True, True, "later"),
        ("sunrpc.tcp_slot_table_entries", False, True, "later"),
        ("net.ipv4.conf.ib0.rp_filter", False, True, "later"),
        ("net.ipv4.conf.all.nosuchkey", True, True, "unknown"),
    ],
)
def test_why_a_key_is_not_there(
    utils: Callable[[str], ModuleType], key: str, folder: bool, first: bool, kind: str
) -> None:
    assert utils("kernel_values").absence(key, folder, first)[0] == kind


@pytest.mark.parametrize("check", [False, True])
def test_a_key_that_no_kernel_has_is_refused_before_anything_changes(kernel: Kernel, check: bool) -> None:
    done = kernel.run([*ARTICLE, {"key": "net.ipv4.nosuchkey", "value": "1"}], check=check)
    assert done["failed"] and "net.ipv4.nosuchkey: this kernel has no such setting" in done["msg"]
    assert kernel.get(RMEM) == "4096 131072 6291456" and not kernel.file.exists()


def test_what_the_kernel_refuses_is_in_no_file_and_the_rest_as_it_was(kernel: Kernel) -> None:
    """What is written to /dev/null is not held."""
    refusing = kernel.path("net.ipv4.zz")
    refusing.symlink_to("/dev/null")
    kernel.file.parent.mkdir(parents=True)
    kernel.file.write_text("# as it was\n")
    done = kernel.run([*ARTICLE[:2], {"key": "net.ipv4.zz", "value": "7"}])
    assert done["failed"] and "net.ipv4.zz: the kernel refuses '7': the kernel holds " in done["msg"]
    assert kernel.get(RMEM) == "4096 131072 6291456" and kernel.file.read_text() == "# as it was\n"
    assert not (kernel.folder / "record.json").exists()


def test_a_later_file_that_wins_at_the_next_boot_is_named_with_its_value(kernel: Kernel) -> None:
    folder = kernel.file.parent
    folder.mkdir(parents=True)
    (folder / "10-before.conf").write_text("net.ipv4.tcp_rmem = 1 2 3\n")
    (folder / "98-site.conf").write_text("# tcp_wmem = 1\n-net/ipv4/tcp_rmem = 4096 87380 6291456\n")
    (folder.parent / "sysctl.conf").write_text("net.ipv4.tcp_wmem=4096 65536 33554432\n")
    for check in (True, False):
        done = kernel.run(ARTICLE[:2], check=check)
        said = f"which sets 4096 87380 6291456 by {folder}/98-site.conf: take net.ipv4.tcp_rmem out of that file"
        # a higher one is not lowered by ours, and a boot may set it
        assert said in str(done["warnings"]) and "tcp_wmem" not in str(done["warnings"])


def test_a_key_of_a_module_that_is_not_loaded_is_written_and_said(kernel: Kernel) -> None:
    bridge = {"key": "net.bridge.bridge-nf-call-iptables", "value": "0", "never_lower": True}
    done = kernel.run([bridge])
    (said,) = done["report"]
    assert "0 is written for the next boot only, because the kernel has no /proc/sys/net/bridge: its module" in said
    assert "net.bridge.bridge-nf-call-iptables = 0\n" in kernel.file.read_text()
    assert not kernel.run([bridge])["changed"]
    kernel.set("net.bridge.bridge-nf-call-iptables", "1")
    assert kernel.run([{**bridge, "never_lower": False}])["report"] == []
    assert kernel.get("net.bridge.bridge-nf-call-iptables") == "0"
    kernel.run([])
    assert kernel.get("net.bridge.bridge-nf-call-iptables") == "1" and not kernel.file.exists()


def test_a_second_run_changes_nothing_and_says_the_same(kernel: Kernel) -> None:
    first, second = kernel.run(ARTICLE), kernel.run(ARTICLE)
    assert first["changed"] and not second["changed"]
    assert first["report"] == second["report"]
    assert any(f"{RMEM}: kept at 4096 131072 16777216" in line for line in first["report"])
    assert f"{CEILING}: not settable on this host" in str(first["warnings"])
    assert kernel.get(RMEM) == "4096 131072 16777216" and kernel.get(WMEM) == "4096 65536 16777216"
    assert f"{RMEM} = 4096 131072 16777216" in kernel.file.read_text() and CEILING not in kernel.file.read_text()


def test_an_empty_tuning_goes_back_to_what_was(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    back = kernel.run([])
    assert back["changed"] and not kernel.file.exists() and not (kernel.folder / "record.json").exists()
    assert kernel.get(RMEM) == "4096 131072 6291456" and kernel.get(WMEM) == "4096 16384 4194304"
    assert not kernel.run([])["changed"]


def test_going_back_leaves_what_somebody_else_set_since(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    kernel.set(RMEM, "4096 131072 99999999")
    assert kernel.run(ARTICLE)["changed"], "the drop-in names the old value and must not win at the next boot"
    assert kernel.get(RMEM) == "4096 131072 99999999"
    kernel.run([])
    assert kernel.get(RMEM) == "4096 131072 99999999" and kernel.get(WMEM) == "4096 16384 4194304"


def test_check_changes_nothing_and_its_diff_is_what_then_happens(kernel: Kernel) -> None:
    checked = kernel.run(ARTICLE, check=True)
    assert checked["changed"] and kernel.get(RMEM) == "4096 131072 6291456" and not kernel.file.exists()
    done = kernel.run(ARTICLE)
    assert checked["diff"] == done["diff"]
    assert done["diff"][0]["after"] == kernel.file.read_text()
    assert f"{RMEM} = 4096 131072 16777216" in done["diff"][1]["after"]
    assert not kernel.run(ARTICLE, check=True)["changed"]


def test_a_run_killed_before_the_kernel_was_set_is_finished_by_the_next(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    for key, value in DEFAULTS.items():  # as if only the record and the file had been written
        kernel.set(key, value)
    assert kernel.run(ARTICLE)["changed"] and kernel.get(WMEM) == "4096 65536 16777216"
    kernel.run([])
    assert kernel.get(WMEM) == "4096 16384 4194304"


def test_a_value_that_is_live_already_is_in_the_file_too(kernel: Kernel) -> None:
    kernel.set(WMEM, "4096 65536 16777216")
    assert kernel.run(ARTICLE)["changed"] and f"{WMEM} = 4096 65536 16777216" in kernel.file.read_text()
    assert not kernel.run(ARTICLE)["changed"]
    kernel.file.unlink()
    assert kernel.run(ARTICLE)["changed"] and f"{WMEM} = 4096 65536 16777216" in kernel.file.read_text()
    kernel.run([])
    assert not kernel.file.exists() and kernel.get(WMEM) == "4096 65536 16777216"


FOREIGN = """\
- hosts: all
  become: true
  gather_facts: false
  roles:
    - role: nodectl.fleet.kernel_settings
      kernel_settings_wanted: {wanted}
"""
FIN, BACKLOG = "net.ipv4.tcp_fin_timeout", "net.core.netdev_max_backlog"


def example() -> str:
    """The first playbook of docs/roles.md, with the role kernel_settings alone."""
    text = (share_dir() / "docs" / "roles.md").read_text()
    play = yaml.safe_load(text.split("```yaml\n", 1)[1].split("```", 1)[0])
    roles = [role for role in play[0]["roles"] if role["role"] == "nodectl.fleet.kernel_settings"]
    return yaml.safe_dump([{**play[0], "hosts": "all", "gather_facts": False, "roles": roles}])


@pytest.mark.slow
@pytest.mark.lab
def test_the_example_of_the_page_does_what_it_says_on_hosts_that_stand_higher_lower_and_read_only(
    lab4: LabUnderTest, ansible_play: Callable[..., Play]
) -> None:
    stands = {
        lab4.hosts[0]: {FIN: "60", RMEM: "4096 131072 6291456"},
        lab4.hosts[1]: {FIN: "15", RMEM: "8192 87380 134217728"},
    }
    becomes = {lab4.hosts[0]: "4096 131072 67108864", lab4.hosts[1]: "8192 131072 134217728"}
    for host, values in stands.items():
        for key, value in values.items():
            lab4.ssh(host, f"sysctl -q -w '{key}={value}'")
    limit = ",".join(stands)
    first = ansible_play(example(), lab4, limit)
    assert first.changed == 1, first.text
    for host, value in becomes.items():
        assert lab4.ssh(host, f"sysctl -n {FIN}") == "30"
        assert lab4.ssh(host, f"sysctl -n {RMEM}").split() == value.split()
        text = lab4.ssh(host, "cat /etc/sysctl.d/90-nodectl.conf")
        assert f"{FIN} = 30" in text and f"{RMEM} = {value}" in text and "zone_reclaim_mode" not in text
    assert f"{RMEM}: kept at {becomes[lab4.hosts[1]]}" in first.text
    # seen without -v: the lab's host has vm.* of its machine
    for host in stands:
        assert f"{host}: vm.zone_reclaim_mode: not settable on this host" in first.text, first.text
    again = ansible_play(example(), lab4, limit)
    assert again.changed == 0 and "vm.zone_reclaim_mode: not settable on this host" in again.text
    wanted = [{"key": FIN, "value": "20"}, {"key": "net.ipv4.nosuchkey", "value": "1"}]
    refused = ansible_play(FOREIGN.format(wanted=json.dumps(wanted)), lab4, limit, check=False)
    assert "net.ipv4.nosuchkey: this kernel has no such setting" in refused.text and "failed=1" in refused.text
    assert lab4.ssh(lab4.hosts[0], f"sysctl -n {FIN}") == "30"
    ansible_play(FOREIGN.format(wanted="[]"), lab4, limit)
    for host, values in stands.items():
        for key, value in values.items():
            assert lab4.ssh(host, f"sysctl -n {key}").split() == value.split()
        assert "90-nodectl" not in lab4.ssh(host, "ls /etc/sysctl.d /var/lib/nodectl 2>/dev/null")
