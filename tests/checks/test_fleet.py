"""A fleet against itself: majorities, minorities, ties, and what nobody may have twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from nodectl.checks.catalogue import fields
from nodectl.checks.check import FIXED, Key, Subject
from nodectl.checks.fleet.compare import Member, claims_of, compare, values_of
from nodectl.checks.judge import judge
from nodectl.facts.board import Firmware, Pcie
from nodectl.facts.catalogue import read_facts
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.host_files import HostFiles, NcclFiles, Variable
from nodectl.facts.kernel import Boot, Kernel, KernelKnobs, Modules
from nodectl.facts.network import FlowControl, InterfaceFlow, Nic
from nodectl.facts.parsers.linux.lspci_acs import PcieBridge
from nodectl.facts.processors import Cpu, Memory
from nodectl.facts.rdma import Gid, IbPort, Pkeys
from nodectl.facts.services import Unit, Units
from nodectl.facts.settings import SessionLimits, Sysctl
from nodectl.facts.storage import Mount, Mounts
from nodectl.facts.versions import Libraries, Library, Userland, Versions
from nodectl.model.facts import Unread
from nodectl.profiles.resolve import Resolved, resolve
from tests.checks.table import dgx
from tests.checks.test_cut_reports import recorded

FIXTURES = Path(__file__).parents[1] / "fixtures"
DRIVER: Key = ("fleet_driver", "", "")
SEEN = frozenset(fields())


def fleet(*values: str | None, key: Key = DRIVER, group: str = "dgx") -> list[Member]:
    """Hosts that have these values; those with an empty one looked, and have none."""
    return [
        Member(f"n{n}", group, {} if value == "" else {key: {"": value}}, SEEN) for n, value in enumerate(values, 1)
    ]


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
        (odd,) = compare(fleet("a", "a", "b", key=(name, "x", "")))
        assert odd.check == name == field.check.id and odd.remedy and odd.status.value in ("failed", "warning")


def test_no_two_machines_have_the_same_serial_but_one_machine_may_be_seen_twice() -> None:
    claims = {("GPU serial", "42"): "GPU 0", ("GPU UUID", "GPU-1"): "GPU 0"}
    two = [
        Member("n1", "dgx", claims=claims, machine="boot1"),
        Member("n2", "dgx", claims=claims, machine="boot2"),
        Member("n3", "dgx"),
    ]
    found = list(compare(two))
    assert {(each.host, each.subject) for each in found} == {(n, k) for n in ("n1", "n2") for k, _ in claims}
    assert "n2" in found[0].actual and "42 (GPU 0)" in found[0].actual
    assert list(compare([two[0], replace(two[1], machine="boot1")])) == []


GPU = Gpu(
    "0000:07:00.0",
    "GPU-0",
    "NVIDIA A100",
    "1320",
    vbios_version="92.00",
    ecc_mode_current=True,
    index=0,
    pcie_gen_current=4,
    performance_state="P0",
)
FACTS: dict[str, object] = {
    "versions": Versions("/v", venv_python="3.10.12", torch="2.9.1", cuda="12.8", nccl="2.27.5", driver="580.95.05"),
    "gpus": Gpus(2, (GPU, replace(GPU, index=1, uuid="GPU-1", serial="1321"))),
    "nccl_files": NcclFiles("NCCL_NET=IB\n", "NCCL_IB_SL=3\nNCCL_ALGO=Ring\n"),
    "kernel": Kernel("Linux", "5.15.0-91", "x86_64", "ubuntu", "22.04", "Ubuntu 22.04.5 LTS"),
    "sysctl": {"vm.swappiness": Sysctl("vm.swappiness", "1"), "vm.min_free_kbytes": Sysctl("vm.min_free_kbytes", "9")},
    "kernel_knobs": KernelKnobs(governors={"performance": 8}, transparent_hugepage="madvise", smt="on"),
    "nics": {
        "ens1": Nic(
            "ens1",
            "up",
            9000,
            "b8:3f:d2:8d:4c:5b",
            ("10.0.0.1/24", "fe80::1/64"),
            100_000,
            "mlx5_core",
            firmware="16.3 (MT)",
            numa_node=3,
        ),
        "docker0": Nic("docker0", "up", 1500, "m", ("172.17.0.1/16",), kind="bridge"),
    },
    "ib_ports": (
        IbPort(
            *("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0),
            link_layer="InfiniBand",
            sm_lid=1,
            guid="0x0c42",
            firmware="20.35",
            board_id="MT_1",
        ),
    ),
    "gids": (Gid("mlx5_0", 1, 0, "fe80:0000:0000:0000:b83f:d203:1a48:ff14"),),
    "userland": Userland("2.35", "UTC"),
    "units": Units("running", {"slurmd": Unit("slurmd", "loaded", "active", "running", "enabled")}, ()),
    "boot": Boot("b1", 9.0),
    "host_serial": "S42",
    "pcie": Pcie((PcieBridge("0000:00:01.1", "Root port", redirects=False),), ()),
    "cpu": Cpu("EPYC", "x86_64", 2, 128, 256, 8),
    "memory": Memory(1_030_000, 1, 0, 515_000, huge_pages_mib=64),
    "mounts": Mounts(
        (
            Mount("/data", "srv:/d", "nfs4", ("rw", "vers=4.2", "clientaddr=10.0.0.1")),
            Mount("/raid", "/dev/md1", "xfs", ("rw",)),
        )
    ),
    "modules": Modules(("nvidia_uvm", "nvidia_peermem", "loop")),
    "libraries": Libraries((Library("libnccl.so.2", "/usr/lib/libnccl.so.2", "2.27.5"),)),
    "limits": SessionLimits("unlimited", "1048576", "8192"),
    "firmware": Firmware(
        {"product_name": "DGX", "bios_version": "1.25"}, ("0x830107c",), {"PM9A3": ("A1",)}, ("PM9A3",)
    ),
    "pkeys": Pkeys({"mlx5_0/1": ("0xffff",)}),
    "flow_control": FlowControl({"ens1": InterfaceFlow((3,), (3,), (3,))}),
    "host_files": HostFiles("0" * 31 + "a", {}, (Variable("~/.bashrc", "NCCL_IB_TC", "106"),)),
}


def brought(facts: dict[str, object], wanted: Resolved | None = None) -> dict[Key, dict[str, str | None]]:
    return values_of(Subject("n1", facts, wanted))[0]


def test_what_a_host_brings() -> None:
    values = brought(FACTS)
    whole = {key[:2]: each[""] for key, each in values.items() if set(each) == {""}}
    expected = yaml.safe_load((FIXTURES / "fleet_brought.yml").read_text())
    assert whole == {(name, part): text for name, part, text in expected}
    parts = {key: each for key, each in values.items() if set(each) != {""}}
    model = "NVIDIA A100"
    both = {
        ("fleet_vbios", "", model): "92.00",
        ("fleet_gpu_settings", "ecc", model): "on",
        ("fleet_gpu_pcie_gen", "", model): "4",
    }
    assert parts == {
        **{key: {"GPU 0": text, "GPU 1": text} for key, text in both.items()},
        ("fleet_nic_firmware", "", "mlx5_core"): {"ens1": "16.3"},
        ("fleet_ib_firmware", "", "MT_1"): {"mlx5_0": "20.35"},
    }
    assert {key[0] for key in values} | {"fleet_cudnn"} == set(fields())


def test_a_box_of_several_kinds_of_gpus_is_no_fault_where_its_profile_names_them_or_nothing() -> None:
    mixed: Any = {"gpus": Gpus(2, (GPU, replace(GPU, index=1, uuid="GPU-1", name="NVIDIA A30")))}
    key = ("fleet_gpu_model", "", "")
    assert brought(mixed)[key] == {"": "NVIDIA A100 + NVIDIA A30"}
    assert brought(mixed, resolve("1 x a100-sxm4-80gb + 1 x a30", "cu128", "stock"))[key] == {
        "": "NVIDIA A100 + NVIDIA A30"
    }
    assert brought(mixed, dgx())[key] == {"GPU 0": "NVIDIA A100", "GPU 1": "NVIDIA A30"}


def test_what_a_profile_fixes_is_not_compared_and_is_no_absence() -> None:
    values = brought(FACTS, dgx())
    fixed = {("fleet_torch", ""), ("fleet_cuda", ""), ("fleet_nccl", ""), ("fleet_ib_ports", "")}
    fixed |= {("fleet_limits", "memlock")}
    assert {key[:2] for key, each in values.items() if each == {"": FIXED}} >= fixed and values[DRIVER] == {
        "": "580.95.05"
    }
    members = [
        replace(each, values={DRIVER: {"": text}})
        for each, text in zip(fleet("", "", ""), ("a", "a", FIXED), strict=True)
    ]
    assert told(members) == []


def test_what_could_not_be_read_is_none_and_what_is_not_there_is_absent() -> None:
    unread = Unread("unknown", "cut")
    values, looked = values_of(Subject("n1", {"versions": unread}, None))
    assert values == {DRIVER: {"": None}, ("fleet_nccl", "", ""): {"": None}} and "fleet_torch" not in looked
    values, looked = values_of(Subject("n1", {"gpus": Unread("absent", "no nvidia-smi")}, None))
    assert values == {} and "fleet_gpus" in looked


@pytest.mark.parametrize("text", ["srv:/d (nfs4: rw,vers=4.2)", "a disk (xfs)"])
def test_who_lacks_what_most_have_is_named(text: str) -> None:
    key: Key = ("fleet_mounts", "/data", "")
    (odd,) = compare(fleet(text, text, "", text, text, key=key))
    assert (odd.host, odd.subject, odd.actual) == ("n3", "/data", "none")
    assert odd.expected == f"{text}, as on 4 of 5 hosts" and odd.status.value == "warning"
    (odd,) = compare(fleet("", "", text, "", "", key=key))
    assert (odd.host, odd.actual, odd.expected) == ("n3", text, "none, as on 4 of 5 hosts")
    # who could not look has not said that it has none
    assert told([*fleet(text, text, key=key), Member("n9", "dgx")]) == []


def gpu_members(*hosts: dict[str, str], name: str = "fleet_vbios") -> list[Member]:
    return [Member(f"n{n}", "dgx", {(name, "", "A100"): each}, SEEN) for n, each in enumerate(hosts, 1)]


def test_gpus_of_all_hosts_are_siblings_and_the_odd_one_is_named() -> None:
    good = {f"GPU {n}": "1410 MHz" for n in range(8)}
    (odd,) = compare(gpu_members(good, {**good, "GPU 5": "1155 MHz"}))
    assert (odd.host, odd.subject, odd.actual) == ("n2", "GPU 5", "1155 MHz")
    assert odd.expected == "1410 MHz, as on 15 of 16 GPUs"
    (odd,) = compare(gpu_members({**good, "GPU 0": "1155 MHz"}))
    assert (odd.host, odd.subject) == ("n1", "GPU 0")
    (odd,) = compare(gpu_members(good, good, dict.fromkeys(good, "1155 MHz")))
    assert (odd.host, odd.subject) == ("n3", "all 8 GPUs")
    (odd,) = compare(gpu_members({"GPU 0": "1410 MHz", "GPU 1": "1155 MHz"}))
    assert odd.actual == "1410 MHz (GPU 0), 1155 MHz (GPU 1)" and odd.status.value == "warning"


def test_a_field_of_networks_is_told_only_where_most_agree() -> None:
    key: Key = ("fleet_subnet", "eth0", "")
    assert told(fleet("10.0.0.0/31", "10.0.0.2/31", "10.0.0.4/31", key=key)) == []
    assert told(fleet("10.0.0.0/24", "10.0.0.0/24", "10.0.1.0/24", key=key)) == [("n3", "fleet_subnet", "warning")]


def mounted(*mounts: Mount) -> set[str]:
    return {key[1] for key in brought({"mounts": Mounts(mounts)})}


def test_only_a_site_s_own_mounts_are_compared() -> None:
    nfs = Mount("/home/ada", "nas:/home/ada", "nfs4", ("rw",))
    assert mounted(nfs, Mount("/home", "auto.home", "autofs", ())) == {"/home"}
    assert mounted(Mount("/proc/sys/fs/binfmt_misc", "systemd-1", "autofs", ()), nfs) == {"/home/ada"}
    disks = [Mount(target, "/dev/sda1", "ext4", ("rw",)) for target in ("/", "/boot", "/var/lib/docker/x", "/raid")]
    assert mounted(*disks) == {"/raid"}
    pod = "/var/lib/kubelet/pods/7c1/volumes/kubernetes.io~nfs/data"
    assert mounted(Mount(pod, "nas:/data", "nfs4", ("rw",)), Mount("/mnt", "ada@nas:/x", "fuse.sshfs", ())) == {"/mnt"}


def test_what_a_host_claims() -> None:
    expected = {
        ("boot id", "b1"): "/proc/sys/kernel/random/boot_id",
        ("serial number", "S42"): "/sys/class/dmi/id/product_serial",
        ("MAC address", "b8:3f:d2:8d:4c:5b"): "ens1",
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


def test_copies_of_a_recording_have_one_set_of_addresses() -> None:
    claims = {("address", "10.0.0.1"): "ens1", ("GPU serial", "1"): "GPU 0"}
    one = Member("n1", "dgx", claims=claims, machine="a", copied=True)
    two = replace(one, host="n2", machine="b", claims={("address", "10.0.0.1"): "ens1", ("GPU serial", "2"): "GPU 0"})
    assert list(compare([one, two])) == []
    odd = replace(two, claims={**two.claims, ("address", "10.0.0.2"): "ens2"})
    assert {each.subject for each in compare([one, odd])} == {"address"}
    assert {each.subject for each in compare([replace(one, copied=False), replace(two, copied=False)])} == {"address"}


def test_one_machine_by_two_names_is_told_once_on_each() -> None:
    claims = {("boot id", "b1"): "there", ("GPU serial", "1320"): "there"}
    found = list(compare([Member(name, "dgx", claims=claims, machine="b1") for name in ("n1", "n2")]))
    assert [(each.host, each.subject, each.status.value) for each in found] == [
        ("n1", "boot id", "warning"),
        ("n2", "boot id", "warning"),
    ]
    assert "once in the inventory" in found[0].remedy


def test_two_adapters_of_one_mac_are_told_but_not_the_bmc_s_on_usb() -> None:
    usb = Nic("usb0", "up", 1500, "be:3a:f2:b6:05:9f", (), driver="cdc_ether")
    assert claims_of(Subject("n1", {"nics": {"usb0": usb}}, None)) == {}
    found = list(compare([Member(name, "dgx", claims={("MAC address", "b8:3f:d2:8d:4c:5b"): "ens1"}) for name in "ab"]))
    assert [(each.host, each.status.value) for each in found] == [("a", "failed"), ("b", "failed")]


@pytest.mark.parametrize("kind", ["unknown", "absent"])
def test_whatever_one_host_of_three_does_not_tell_is_told(kind: Literal["unknown", "absent"]) -> None:
    _, recording = recorded("dgx-a100")
    facts, wanted = read_facts(recording), dgx()

    def member(host: str, facts: dict[str, object]) -> Member:
        return Member(host, "dgx", *values_of(Subject(host, facts, wanted)))

    def of_one(facts: dict[str, object]) -> set[tuple[str, str]]:
        return {(each.check, each.status.value) for each in judge(Subject("a", facts, wanted))}

    others = [member("b", facts), member("c", facts)]
    given = {key[0] for key, parts in others[0].values.items() if {*parts.values()} - {"", "none"}}
    silent = set()
    for name in given:
        lacking = {**facts, fields()[name].reads[0]: Unread(kind, "it broke", garbled=True)}
        of_fleet = [each for each in compare([member("a", lacking), *others]) if each.host == "a"]
        if not of_fleet and of_one(lacking) == of_one(facts):
            silent.add(name)
    # of an interface or a port that another host does not have by this name its absence says nothing
    assert {name for name in silent if kind == "unknown" or fields()[name].absence} == set()
