"""The nic role: `ethtool` as it prints, interrupts on a folder that looks like /sys, and a real interface's MTU."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils import nic_hw
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Held
from tests.conftest import LabUnderTest
from tests.roles.run_module import run_module

# ethtool 6.1, mlx5: a device without mini and jumbo rings
RINGS = """Ring parameters for ens1f0np0:
Pre-set maximums:
RX:		8192
RX Mini:	n/a
RX Jumbo:	n/a
TX:		4096
Current hardware settings:
RX:		1024
RX Mini:	n/a
RX Jumbo:	n/a
TX:		4096
RX Buf Len:		n/a
"""
LINK = {"mtu": 1500, "min_mtu": 68, "max_mtu": 9978, "up": True}


@pytest.fixture(scope="module")
def nic(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("nic", "nic_settings")


def answering(**texts: str) -> Callable[[list[str]], tuple[int, str, str]]:
    def run(argv: list[str]) -> tuple[int, str, str]:
        known = texts.get(argv[0])
        return (0, known, "") if known is not None else (95, "", "Operation not supported")

    return run


def test_rings_are_read_by_name() -> None:
    assert nic_hw.rings(answering(ethtool=RINGS), "x") == ({"rx": 8192, "tx": 4096}, {"rx": 1024, "tx": 4096})
    assert nic_hw.rings(answering(), "x") is None


def test_only_what_differs_is_run() -> None:
    run = answering(ethtool=RINGS)
    wanted = {"mtu": 9000, "rings": True, "irq": False}
    assert nic_hw.commands(run, "x", wanted, LINK) == [
        ["ip", "link", "set", "dev", "x", "mtu", "9000"],
        ["ethtool", "-G", "x", "rx", "8192"],
    ]
    assert nic_hw.commands(run, "x", {"mtu": 1500}, LINK) == []
    assert nic_hw.commands(run, "x", {"mtu": 9999}, LINK) == [], "the device cannot"


def test_interrupts_are_those_of_the_numa_node(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/net/x/device"
    (device / "msi_irqs").mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    (device / "local_cpulist").write_text("16-31,48-63\n")
    for irq, cpus in {"101": "16", "102": "0-63"}.items():
        (device / "msi_irqs" / irq).touch()
        (tmp_path / "proc/irq" / irq).mkdir(parents=True)
        (tmp_path / "proc/irq" / irq / "smp_affinity_list").write_text(cpus + "\n")
    found = nic_hw.interrupts("x", str(tmp_path / "sys"), str(tmp_path / "proc"))
    assert found == ("16-31,48-63", {"101": "16", "102": "0-63"})
    (device / "numa_node").write_text("-1\n")
    assert nic_hw.interrupts("x", str(tmp_path / "sys"), str(tmp_path / "proc")) is None


def test_rings_and_mtu_go_back_where_nobody_else_has_set_them(nic: ModuleType) -> None:
    run = answering(ethtool=RINGS.replace("1024", "8192"))
    nics = SimpleNamespace(run=run, names=[], links={"x": {**LINK, "mtu": 9000}}, held=Held("/nowhere"))
    nics.now = lambda key: nic.Interfaces.now(nics, key)
    nics.held.entries = {
        "/sys/class/net/x/mtu": {"before": "1500", "after": "9000"},
        "rings x": {"before": {"rx": "1024", "tx": "4096"}, "after": nics.now("rings x")},
    }
    mtu, rings = ["ip", "link", "set", "dev", "x", "mtu", "1500"], ["ethtool", "-G", "x", "rx", "1024"]
    assert nic.Interfaces.given_back(nics, {}) == [mtu, rings]
    assert nic.Interfaces.given_back(nics, {"rings x": {}}) == [mtu]
    nics.links["x"]["mtu"] = 4000
    assert nic.Interfaces.given_back(nics, {}) == [rings]


def test_what_a_trial_sets_is_undone_by_these_commands(nic: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "irq").write_text("0-3\n")
    nics = SimpleNamespace(run=answering(ethtool=RINGS), links={"x": LINK})
    nics.now = lambda key: nic.Interfaces.now(nics, key)
    mtu, rings = ["ip", "link", "set", "dev", "x", "mtu"], ["ethtool", "-G", "x"]
    todo = [[*mtu, "9000"], [*rings, "rx", "8192"], ["write", str(tmp_path / "irq"), "0"]]
    undone = {"mtu x": [*mtu, "1500"], "rings x rx": [*rings, "rx", "1024"]}
    assert nic.Interfaces.former(nics, todo) == ({str(tmp_path / "irq"): "0-3"}, undone)


def test_the_session_is_found_also_below_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, parent, environ in ((900, 800, b"PATH=/bin\0"), (800, 1, b"A=1\0SSH_CONNECTION=10.0.0.9 5 10.0.0.2 22\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(environ)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a b) S {parent} 1 1")
    monkeypatch.setattr("os.getpid", lambda: 900)
    assert nic_hw.session_address(str(tmp_path)) == "10.0.0.2"
    rows = [{"ifname": "eno1", "addr_info": [{"local": "10.0.0.2"}]}, {"ifname": "ens1", "addr_info": []}]
    assert nic_hw.session_interface(answering(ip=json.dumps(rows)), "10.0.0.2") == "eno1"
    assert nic_hw.session_interface(answering(ip=json.dumps(rows)), "") == ""


def test_an_interface_that_is_not_there_is_refused(tmp_path: Path) -> None:
    arguments = settings(tmp_path) | {"state": "look", "interfaces": ["ens9"], "mtu": 9000}
    answer = run_module("plugins/modules/nic_settings.py", arguments, folder=tmp_path)
    assert answer["failed"] and answer["msg"].startswith("ens9: no such interface; there are ")


def test_what_was_asked_for_and_cannot_be_set_is_a_warning(tmp_path: Path) -> None:
    arguments = settings(tmp_path) | {"state": "set", "interfaces": ["lo"], "rings": True, "irq": True}
    answer = run_module("plugins/modules/nic_settings.py", arguments, folder=tmp_path, check=True)
    assert "rings of lo: not settable on this host: it has no ring sizes" in str(answer["warnings"])
    assert "interrupts of lo: not settable on this host" in str(answer["warnings"])


def settings(folder: Path) -> dict[str, Any]:
    return {name: str(folder / name) for name in ("program", "settings", "unit", "record")}


PLAY = """
- hosts: all
  gather_facts: false
  roles: [{role: nodectl.fleet.nic, nic_mtu: "{{ wanted }}", nic_interfaces: "{{ named | default([]) }}"}]
  post_tasks:
    - ansible.builtin.import_role: {name: nodectl.fleet.nic, tasks_from: verify}
      vars:
        nodectl_nics: "{{ named | default([]) }}"
        nic_mtu: "{{ wanted }}"
    - ansible.builtin.debug: {msg: "{{ nic_verified.findings | default([]) }}"}
"""


@pytest.mark.lab
@pytest.mark.slow
def test_the_mtu_of_a_real_interface_and_back(lab4: LabUnderTest, ansible_play: Callable[..., Any]) -> None:
    host = lab4.hosts[3]
    try:
        left = ansible_play(PLAY, lab4, host, wanted=1400)
        assert left.changed == 0, "the session's interface is not touched unless it is named"
        first = ansible_play(PLAY, lab4, host, wanted=1400, named=["eth0"])
        assert first.changed == 1 and "mtu 1400" in lab4.ssh(host, "ip link show eth0")
        assert "'actual': '1400'" in first.text.replace('"', "'")
        assert ansible_play(PLAY, lab4, host, wanted=1400, named=["eth0"]).changed == 0
        refused = ansible_play(PLAY, lab4, host, wanted=70000, named=["eth0"], check=False)
        assert "MTU 70000 is outside the device's 68 to 65535" in refused.text
        assert "mtu 1400" in lab4.ssh(host, "ip link show eth0")
        back = ansible_play(PLAY, lab4, host, wanted=0)
        assert back.changed == 1 and "mtu 1500" in lab4.ssh(host, "ip link show eth0")
        assert lab4.ssh(host, "ls /etc/nodectl/nic.json /opt/nodectl/lib 2>&1 | grep -c nic") == "1"
    finally:
        lab4.ssh(host, "ip link set dev eth0 mtu 1500; rm -f /etc/nodectl/nic.json")
