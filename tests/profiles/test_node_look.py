"""node_look on file systems made up for the test: what it says of the system, the GPUs and where a driver came from."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nodectl.common.resources import recordings_dir, share_dir
from tests.roles.run_module import run_module

MODULE = "plugins/modules/node_look.py"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n"
# of NVIDIA's own repository, and of the distribution's
NVIDIA = ("cuda-drivers-535", "535.183.01-1", "NVIDIA CORPORATION <cudatools@nvidia.com>")
UBUNTU = ("nvidia-headless-535-server", "535.183.01-0ubuntu1", "Ubuntu Core <ubuntu-devel-discuss@lists.ubuntu.com>")
# of Debian: its own, and the one for Tesla cards whose names carry the branch
ALIOTH = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
DEBIAN = tuple((name, "535.261.03-1", ALIOTH) for name in ("libcuda1", "nvidia-open-kernel-dkms", "nvidia-smi"))
TESLA = tuple((f"{name}-tesla-470-cuda1", "470.256.02-1", ALIOTH) for name in ("libnvidia", "nvidia"))
OTHER = ("nvidia-driver-535", "535.183.01", "A workstation vendor <packages@example.com>")


def node_look() -> ModuleType:
    """The module as Ansible loads it."""
    spec = importlib.util.spec_from_file_location("node_look", share_dir() / MODULE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Root:
    """A file system to look at, filled piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n')

    def write(self, name: str, text: str = "") -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def device(self, address: str, vendor: str, kind: str, identity: str) -> None:
        for name, text in (("vendor", vendor), ("class", kind), ("device", identity), ("numa_node", "1")):
            self.write(f"sys/bus/pci/devices/{address}/{name}", text + "\n")

    def packages(self, *rows: tuple[str, str, str], status: str = "install ok installed") -> None:
        stanzas = [
            f"Package: {name}\nStatus: {status}\nMaintainer: {who}\nVersion: {version}\nDescription: x\n more: y\n"
            for name, version, who in rows
        ]
        self.write("var/lib/dpkg/status", "\n".join(stanzas))

    def look(self) -> dict[str, Any]:
        return dict(LOOK_MODULE.look(str(self.path)))


LOOK_MODULE = node_look()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_gpus_and_switches_come_from_the_pci_bus(root: Root) -> None:
    root.device("0000:07:00.0", "0x10de", "0x030200", "0x20b2")
    root.device("0000:0f:00.0", "0x10de", "0x030000", "0x2684")
    root.device("0000:c4:00.0", "0x10de", "0x068000", "0x1af1")
    root.device("0000:0f:00.1", "0x10de", "0x040300", "0x22ba")  # a card's sound
    root.device("0000:00:02.0", "0x8086", "0x030000", "0x4680")  # another maker's display
    found = root.look()
    assert [gpu["device"] for gpu in found["gpus"]] == ["0x20b2", "0x2684"]
    assert found["gpus"][0] == {"address": "0000:07:00.0", "device": "0x20b2", "numa_node": 1}
    assert found["nvswitch"] is True


def test_a_machine_without_nvidia_has_no_gpu_and_no_driver(root: Root) -> None:
    found = root.look()
    assert (found["gpus"], found["nvswitch"], found["gpu_users"]) == ([], False, [])
    assert found["driver"] == {"version": None, "flavour": None, "origin": "none", "from": [], "packages": []}
    assert found["os"] == {"id": "ubuntu", "version": "22.04", "key": "ubuntu-22.04"}


@pytest.mark.parametrize(
    ("said", "version", "flavour"), [(PROPRIETARY, "535.183.01", "proprietary"), (OPEN, "580.65.06", "open")]
)
def test_the_loaded_driver_tells_its_version_and_flavour(root: Root, said: str, version: str, flavour: str) -> None:
    root.write("proc/driver/nvidia/version", said + "GCC version:  gcc version 11.4.0\n")
    driver = root.look()["driver"]
    assert (driver["version"], driver["flavour"]) == (version, flavour)


@pytest.mark.parametrize(
    ("files", "rows", "origin", "owners"),
    [
        ((), (), "foreign", []),
        ((), (NVIDIA,), "apt", ["nvidia"]),
        ((), (UBUNTU,), "apt", ["distribution"]),
        ((), (NVIDIA, UBUNTU), "apt", ["distribution", "nvidia"]),
        ((), DEBIAN, "apt", ["distribution"]),
        ((), TESLA, "apt", ["distribution"]),
        ((), (OTHER,), "foreign", ["other"]),
        (("usr/bin/nvidia-uninstall",), (), "run", []),
        (("etc/dgx-release",), (NVIDIA,), "dgx", ["nvidia"]),
    ],
)
def test_a_loaded_driver_tells_where_it_came_from(
    root: Root, files: tuple[str, ...], rows: tuple[tuple[str, str, str], ...], origin: str, owners: list[str]
) -> None:
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    root.packages(*rows)
    for name in files:
        root.write(name)
    driver = root.look()["driver"]
    assert (driver["origin"], driver["from"]) == (origin, owners)
    assert [package["name"] for package in driver["packages"]] == sorted(name for name, _, _ in rows)


@pytest.mark.parametrize(
    ("path", "text", "key", "value"),
    [
        ("run/systemd/system/x", "", "systemd", True),
        ("run/host/container-manager", "systemd-nspawn", "container", "systemd-nspawn"),
        ("run/.containerenv", "", "container", "podman"),
        ("sys/module/nouveau/initstate", "live", "nouveau", True),
    ],
)
def test_the_kind_of_machine(root: Root, path: str, text: str, key: str, value: object) -> None:
    assert not root.look()[key]
    root.write(path, text)
    assert root.look()[key] == value


def test_secure_boot_is_the_last_byte_of_its_variable(root: Root) -> None:
    variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert root.look()["secure_boot"] is None
    for text, value in (("\x06\0\0\0\x01", True), ("\x06\0\0\0\0", False)):
        root.write(variable, text)
        assert root.look()["secure_boot"] is value


def test_what_is_recorded_replaces_what_is_found_and_is_named(root: Root) -> None:
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    arguments = {"root": str(root.path), "recorded": {"driver": {"version": "470.57.02"}, "nvswitch": True}}
    answer = run_module(MODULE, arguments, folder=root.path, check=True)
    assert answer["changed"] is False
    found = answer["node"]
    assert found["driver"]["version"] == "470.57.02" and found["driver"]["flavour"] == "proprietary"
    assert found["nvswitch"] is True and found["recorded"] == ["driver", "nvswitch"]


def test_a_lab_host_has_the_gpus_of_its_recording_and_none_of_the_machine(root: Root) -> None:
    root.device("0000:01:00.0", "0x10de", "0x030200", "0x2330")
    root.write("etc/nodectl-lab", "{}")
    assert root.look()["gpus"] == []
    folder = "var/lib/nodectl-lab/recorded"
    recorded = recordings_dir() / "h100-8" / "node01"
    root.write(f"{folder}/name", "h100-8\n")
    for name in ("lspci-acs.out", "nvidia-smi-q.out", "proc-driver-nvidia.out"):
        root.write(f"{folder}/{name}", (recorded / name).read_text())
    looked = run_module(MODULE, {"root": str(root.path)}, folder=root.path)["node"]
    assert [gpu["device"] for gpu in looked["gpus"]] == ["0x2330"] * 8 and looked["nvswitch"]
    assert looked["driver"] == {
        "version": "580.95.05",
        "flavour": "open",
        "origin": "foreign",
        "from": [],
        "packages": [],
    }
    assert looked["recorded"] == ["driver", "gpus", "nvswitch"]


@pytest.mark.parametrize(
    ("driver", "kernel", "loaded", "path"),
    [
        (OPEN, "6.1.0-18-amd64", False, "dma-buf"),
        (OPEN, "5.12.0", True, "dma-buf"),
        (OPEN, "5.4.0-190-generic", False, "none"),
        (PROPRIETARY, "6.1.0-18-amd64", False, "none"),
        (PROPRIETARY, "6.1.0-18-amd64", True, "peermem"),
        ("", "6.1.0-18-amd64", False, "none"),
    ],
)
def test_dma_buf_comes_before_peermem(root: Root, driver: str, kernel: str, loaded: bool, path: str) -> None:
    root.write("proc/sys/kernel/osrelease", kernel)
    if driver:
        root.write("proc/driver/nvidia/version", driver)
    if loaded:
        root.write("sys/module/nvidia_peermem/refcnt", "0")
    assert root.look()["gpudirect"] == path


def test_a_clocks_keeper_is_found_by_its_process(root: Root) -> None:
    for number, name in enumerate(("sshd", "systemd-timesyn", "chronyd")):
        root.write(f"proc/{100 + number}/comm", name + "\n")
    assert root.look()["clock"]["keeper"] == "chrony"
