"""A fleet against itself: majorities, minorities, ties, and what nobody may have twice."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.checks.catalogue import fields
from nodectl.checks.check import Key, Subject
from nodectl.checks.fleet.compare import Member, claims_of, compare, values_of
from nodectl.facts.containers import ContainerToolkit
from nodectl.facts.cpu import Cpu
from nodectl.facts.firmware import Firmware
from nodectl.facts.flow_control import FlowControl, InterfaceFlow
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.host_files import HostFiles, Variable
from nodectl.facts.ib_ports import IbPort
from nodectl.facts.kernel import Kernel
from nodectl.facts.kernel_knobs import KernelKnobs
from nodectl.facts.libraries import Libraries, Library
from nodectl.facts.limits import SessionLimits
from nodectl.facts.memory import Memory
from nodectl.facts.modules import Modules
from nodectl.facts.mounts import Mount, Mounts
from nodectl.facts.nccl_files import NcclFiles
from nodectl.facts.nics import Nic
from nodectl.facts.pcie import Pcie, PcieBridge
from nodectl.facts.pkeys import Pkeys
from nodectl.facts.sysctl import Sysctl
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from tests.checks.table import dgx

DRIVER: Key = ("fleet_driver", "")


def fleet(*values: str | None, key: Key = DRIVER, group: str = "dgx") -> list[Member]:
    return [Member(f"n{n}", group, {key: value}) for n, value in enumerate(values, 1)]


def told(members: list[Member]) -> list[tuple[str, str, str]]:
    return [(each.host, each.check, each.status.value) for each in compare(members)]


def test_the_minority_is_named_and_the_majority_is_what_is_expected() -> None:
    (odd,) = compare(fleet("580", "580", "580", "535"))
    assert (odd.host, odd.check, odd.status.value, odd.actual) == ("n4", "fleet_driver", "failed", "535")
    assert odd.expected == "580, as on 3 of 4 hosts" and odd.remedy


@pytest.mark.parametrize(
    ("values", "who"),
    [
        (("580", "580", "580"), []),
        (("580",), []),
        (("580", "535"), ["n1", "n2"]),
        (("580", "535", "550"), ["n1", "n2", "n3"]),
        (("580", "580", "535", "535"), ["n1", "n2", "n3", "n4"]),
        (("580", "580", "580", "535", "550"), ["n4", "n5"]),
    ],
)
def test_without_a_majority_there_is_no_culprit(values: tuple[str, ...], who: list[str]) -> None:
    found = list(compare(fleet(*values)))
    assert [each.host for each in found] == who
    if len(who) == len(values):
        assert {each.status.value for each in found} <= {"warning"}
        assert all("one value on all hosts" in each.expected for each in found)


def test_who_could_not_tell_is_unknown_and_no_vote() -> None:
    assert told(fleet("580", "580", "580", None)) == [("n4", "fleet_driver", "unknown")]
    assert told(fleet("580", None)) == []


def test_only_hosts_of_one_kind_are_compared() -> None:
    other = [replace(each, host=f"m{each.host}") for each in fleet("535", "535", group="lab-cpu")]
    assert told([*fleet("580", "580"), *other]) == []


def test_every_field_says_how_it_is_and_what_to_do() -> None:
    for name, field in fields().items():
        (odd,) = compare(fleet("a", "a", "b", key=(name, "x")))
        assert odd.check == name == field.check.id and odd.remedy and odd.status.value in ("failed", "warning")


def test_no_two_machines_have_the_same_serial_but_one_machine_may_be_seen_twice() -> None:
    claims = {("GPU serial", "42"): "GPU 0", ("GPU UUID", "GPU-1"): "GPU 0"}
    two = [Member("n1", "dgx", {}, claims, "boot1"), Member("n2", "dgx", {}, claims, "boot2"), Member("n3", "dgx")]
    found = list(compare(two))
    assert {(each.host, each.subject) for each in found} == {(n, k) for n in ("n1", "n2") for k, _ in claims}
    assert "n2" in found[0].actual and "42 (GPU 0)" in found[0].actual
    assert list(compare([two[0], replace(two[1], machine="boot1")])) == []


GPU = Gpu(
    "0000:07:00.0",
    "GPU-0",
    "NVIDIA A100",
    "1320",
    memory_total_mib=81920,
    vbios_version="92.00",
    ecc_mode_current=True,
    index=0,
)
FACTS: dict[str, object] = {
    "versions": Versions("/v", venv_python="3.10.12", torch="2.9.1", cuda="12.8", nccl="2.27.5", driver="580.95.05"),
    "gpus": Gpus(2, (GPU, replace(GPU, index=1, uuid="GPU-1", serial="1321"))),
    "nccl_files": NcclFiles("NCCL_NET=IB\n", "NCCL_IB_SL=3\nNCCL_ALGO=Ring\n"),
    "kernel": Kernel("Linux", "5.15.0-91", "x86_64", "ubuntu", "22.04", "Ubuntu 22.04.5 LTS"),
    "sysctl": {"vm.swappiness": Sysctl("vm.swappiness", "1"), "vm.min_free_kbytes": Sysctl("vm.min_free_kbytes", "9")},
    "kernel_knobs": KernelKnobs(governors={"performance": 8}, transparent_hugepage="madvise", smt="on"),
    "nics": {
        "ens1": Nic("ens1", "up", 9000, "m", ("10.0.0.1/24", "fe80::1/64"), 100_000, "mlx5_core", firmware="16.3 (MT)"),
        "docker0": Nic("docker0", "up", 1500, "m", ("172.17.0.1/16",), kind="bridge"),
    },
    "ib_ports": (IbPort("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0, guid="0x0c42", firmware="20.35", board_id="MT_1"),),
    "pcie": Pcie((PcieBridge("0000:00:01.1", "Root port", redirects=False),), ()),
    "cpu": Cpu("EPYC", "x86_64", 2, 128, 256, 8),
    "memory": Memory(1_030_000, 1, 0, 1),
    "mounts": Mounts((Mount("/data", "srv:/d", "nfs4", ("rw", "vers=4.2", "clientaddr=10.0.0.1")),)),
    "modules": Modules(("nvidia_uvm", "nvidia_peermem", "loop")),
    "libraries": Libraries((Library("libnccl.so.2", "/usr/lib/libnccl.so.2", "2.27.5"),)),
    "limits": SessionLimits("unlimited", "1048576", "8192"),
    "firmware": Firmware({"product_name": "DGX", "bios_version": "1.25"}, ("0x830107c",), {"PM9A3": ("A1",)}),
    "pkeys": Pkeys({"mlx5_0/1": ("0xffff",)}),
    "flow_control": FlowControl({"ens1": InterfaceFlow((3,), (3,), (3,))}),
    "containers": ContainerToolkit("1.17.8"),
    "host_files": HostFiles("0" * 31 + "a", {}, (Variable("~/.bashrc", "NCCL_IB_TC", "106"),)),
}


def test_what_a_host_brings() -> None:
    values = values_of(Subject("n1", FACTS, None))
    assert values == {
        ("fleet_driver", ""): "580.95.05",
        ("fleet_torch", ""): "2.9.1",
        ("fleet_cuda", ""): "12.8",
        ("fleet_nccl", ""): "2.27.5",
        ("fleet_python", ""): "3.10.12",
        ("fleet_gpu_model", ""): "2 x NVIDIA A100",
        ("fleet_vbios", ""): "92.00",
        ("fleet_gpu_settings", "ecc"): "on",
        ("fleet_gpu_order", "2 GPUs"): "0000:07:00.0 0000:07:00.0",
        ("fleet_kernel", ""): "5.15.0-91",
        ("fleet_os", ""): "Ubuntu 22.04.5 LTS",
        ("fleet_sysctl", "vm.swappiness"): "1",
        ("fleet_kernel_knobs", "governor"): "performance",
        ("fleet_kernel_knobs", "huge pages"): "madvise",
        ("fleet_kernel_knobs", "SMT"): "on",
        ("fleet_mtu", "ens1"): "9000",
        ("fleet_nic_firmware", "mlx5_core"): "16.3",
        ("fleet_nics", ""): "1 x mlx5_core 100000 Mbit/s",
        ("fleet_ib_firmware", "MT_1"): "20.35",
        ("fleet_ib_ports", ""): "1 x None 200 Gbit/s",
        ("fleet_acs", ""): "off",
        ("fleet_cpu", ""): "2 x EPYC, 256 threads, 8 NUMA nodes",
        ("fleet_memory", ""): "1008 GiB",
        ("fleet_mounts", "/data"): "srv:/d (nfs4: rw,vers=4.2)",
        ("fleet_modules", ""): "nvidia_peermem nvidia_uvm",
        ("fleet_libraries", "libnccl"): "2.27.5",
        ("fleet_limits", "memlock"): "unlimited",
        ("fleet_limits", "nofile"): "1048576",
        ("fleet_limits", "stack"): "8192",
        ("fleet_board_firmware", "DGX"): "1.25",
        ("fleet_microcode", ""): "0x830107c",
        ("fleet_disk_firmware", "PM9A3"): "A1",
        ("fleet_pkeys", ""): "0xffff",
        ("fleet_flow_control", "ens1"): "PFC 3, ECN notified 3, ECN reacting 3",
        ("fleet_container_toolkit", ""): "1.17.8",
        ("fleet_nccl_user", ""): "NCCL_ALGO=Ring, NCCL_IB_SL=3",
        ("fleet_login_variables", ""): "NCCL_IB_TC=106 (~/.bashrc)",
    }
    elsewhere = {"fleet_cudnn", "fleet_read_request", "fleet_ib_spare_ports"}
    assert {key[0] for key in values} | elsewhere == set(fields())


def test_what_a_profile_fixes_is_not_compared() -> None:
    values = values_of(Subject("n1", FACTS, dgx()))
    fixed: set[Key] = {
        ("fleet_torch", ""),
        ("fleet_cuda", ""),
        ("fleet_nccl", ""),
        ("fleet_ib_ports", ""),
        ("fleet_limits", "memlock"),
    }
    assert not fixed & set(values) and DRIVER in values


def test_what_could_not_be_read_is_none_and_what_is_not_there_is_left_out() -> None:
    unread = Unread("unknown", "cut")
    assert values_of(Subject("n1", {"versions": unread}, None)) == {DRIVER: None, ("fleet_nccl", ""): None}
    assert values_of(Subject("n1", {"gpus": Unread("absent", "no nvidia-smi")}, None)) == {}


def test_what_a_host_claims() -> None:
    expected = {
        ("address", "10.0.0.1"): "ens1",
        ("machine-id", "0" * 31 + "a"): "/etc/machine-id",
        ("GPU serial", "1320"): "GPU 0",
        ("GPU serial", "1321"): "GPU 1",
        ("GPU UUID", "GPU-0"): "GPU 0",
        ("GPU UUID", "GPU-1"): "GPU 1",
        ("port GUID", "0x0c42"): "mlx5_0",
    }
    assert claims_of(Subject("n1", FACTS, None)) == expected
    zero: Any = {"gpus": Gpus(1, (replace(GPU, serial="0", uuid=None),))}
    assert claims_of(Subject("n1", zero, None)) == {}


def test_a_clone_is_told_how_to_get_an_id_of_its_own() -> None:
    claims = {("machine-id", "a" * 32): "/etc/machine-id"}
    found = list(compare([Member("n1", "dgx", {}, claims, "b1"), Member("n2", "dgx", {}, claims, "b2")]))
    assert [(each.host, each.status.value, each.subject) for each in found] == [
        ("n1", "failed", "machine-id"),
        ("n2", "failed", "machine-id"),
    ]
    assert all("systemd-machine-id-setup" in each.remedy for each in found)


def test_a_port_beyond_the_profile_s_is_compared_where_those_of_the_profile_are_there() -> None:
    ports = tuple(IbPort(f"mlx5_{n}", 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand") for n in range(9))
    spare: Key = ("fleet_ib_spare_ports", "")
    seen = [values_of(Subject("n1", {"ib_ports": some}, dgx())).get(spare) for some in (ports, ports[:8], ports[:7])]
    assert seen == ["9 x InfiniBand 200 Gbit/s", "8 x InfiniBand 200 Gbit/s", None]


def test_copies_of_a_recording_have_one_set_of_addresses() -> None:
    one = Member("n1", "dgx", {}, {("address", "10.0.0.1"): "ens1", ("GPU serial", "1"): "GPU 0"}, "a", copied=True)
    two = replace(one, host="n2", machine="b", claims={("address", "10.0.0.1"): "ens1", ("GPU serial", "2"): "GPU 0"})
    assert list(compare([one, two])) == []
    odd = replace(two, claims={**two.claims, ("address", "10.0.0.2"): "ens2"})
    assert {each.subject for each in compare([one, odd])} == {"address"}
    assert {each.subject for each in compare([replace(one, copied=False), replace(two, copied=False)])} == {"address"}
