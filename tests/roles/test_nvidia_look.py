"""What the driver's and fabric manager's verify say of a host, from files that stand for its kernel; without a GPU."""

import platform
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module
from tests.roles.test_nvidia_solving import filters  # noqa: F401  a fixture

DRIVER = "plugins/modules/nvidia_driver_look.py"
FABRIC = "plugins/modules/fabric_manager_look.py"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"


class Root:
    """A folder in the place of a host's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, content: str | bytes = "") -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def has_gpu(self) -> None:
        for name, value in {"vendor": "0x10de", "class": "0x030200", "device": "0x20b2"}.items():
            self.write(f"sys/bus/pci/devices/0000:07:00.0/{name}", value + "\n")

    def has_package(self, name: str, version: str) -> None:
        self.write(
            "var/lib/dpkg/status",
            "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n"
            f"Package: {name}\nStatus: hold ok installed\nArchitecture: amd64\nVersion: {version}\n",
        )

    def driver(self, **options: Any) -> dict[str, dict[str, str]]:
        arguments: dict[str, Any] = {"mode": "manage", "branch": "535", "min": "525.60.13", "flavour": "proprietary"}
        arguments |= {"packages": ["cuda-drivers-535"], "root": str(self.folder), **options}
        answer = run_module(DRIVER, arguments, folder=self.folder)
        return {found["subject"]: found for found in answer["findings"]}

    def fabric(self, says: str | None) -> dict[str, str]:
        program = self.folder / "nv-fabricmanager"
        if says is not None:
            program.write_text(f"#!/bin/sh\necho '{says}'\n")
            program.chmod(0o755)
        arguments = {"wanted": True, "service": "x.service", "program": str(program), "root": str(self.folder)}
        found: dict[str, str] = run_module(FABRIC, arguments, folder=self.folder)["findings"][0]
        return found


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_the_installed_driver_that_is_loaded_is_fine(root: Root) -> None:
    root.has_gpu()
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    root.has_package("cuda-drivers-535", "535.183.01-1")
    assert {found["status"] for found in root.driver().values()} == {"ok"}


def test_no_gpu_is_neither_failed_nor_passed(root: Root) -> None:
    assert root.driver()["loaded"]["status"] == "skipped"


def test_an_installed_driver_that_is_not_loaded_asks_for_a_reboot(root: Root) -> None:
    root.has_gpu()
    root.has_package("cuda-drivers-535", "535.183.01-1")
    found = root.driver()["loaded"]
    assert found["status"] == "failed" and found["remedy"] == "reboot: 535.183.01 is installed"


def test_another_driver_loaded_than_installed_is_failed(root: Root) -> None:
    root.has_gpu()
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    root.has_package("cuda-drivers-535", "535.216.01-1")
    found = root.driver()
    assert found["loaded"]["status"] == "ok" and found["branch"]["status"] == "failed"
    assert found["branch"]["expected"] == "535.216.01, as installed"


@pytest.mark.parametrize(("low", "status"), [("525.60.13", "ok"), ("580", "failed"), ("535.183.01", "ok")])
def test_a_kept_driver_is_held_against_the_lowest_version_only(root: Root, low: str, status: str) -> None:
    root.has_gpu()
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    found = root.driver(mode="keep", min=low, flavour="open")
    assert found["loaded"]["status"] == status and "branch" not in found
    assert found["kernel modules"]["status"] == "warning" and found["kernel modules"]["actual"] == "proprietary"


def test_why_dkms_has_no_module_is_told(root: Root) -> None:
    root.has_gpu()
    root.has_package("cuda-drivers-535", "535.183.01-1")
    root.write("var/lib/dkms/nvidia/535.183.01/build/make.log", "make\nmodules.....(bad exit status: 2)\n")
    found = root.driver()["DKMS"]
    assert found["status"] == "failed" and "bad exit status: 2" in found["actual"]
    assert f"linux-headers-{platform.release()}" in found["remedy"]
    root.write(f"var/lib/dkms/nvidia/535.183.01/{platform.release()}/x86_64/module/nvidia.ko")
    assert root.driver()["DKMS"]["status"] == "ok"


def test_nouveau_and_secure_boot_are_named(root: Root) -> None:
    root.has_gpu()
    root.write("sys/module/nouveau/refcnt", "0")
    root.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01")
    found = root.driver()
    assert found["nouveau"]["status"] == found["Secure Boot"]["status"] == "warning"


def test_fabric_manager_of_another_version_is_failed_whatever_its_package_is_called(root: Root) -> None:
    root.write("proc/driver/nvidia/version", PROPRIETARY)
    assert root.fabric("Fabric Manager version is : 535.183.01")["status"] == "ok"
    found = root.fabric("Fabric Manager version is : 580.105.08")
    assert (
        found["status"] == "failed" and found["actual"] == "580.105.08" and found["expected"].startswith("535.183.01")
    )
    assert root.fabric("no such option")["status"] == "failed"


def test_fabric_manager_cannot_be_told_without_a_driver(root: Root) -> None:
    assert root.fabric("Fabric Manager version is : 535.183.01")["status"] == "unknown"


def look(origin: str = "none", version: str | None = None, **more: Any) -> dict[str, Any]:
    driver: dict[str, Any] = {"version": version, "origin": origin, "packages": [], "from": [], "flavour": None}
    return {"driver": {**driver, **more}, "gpu_users": []}


WANTED = {"branch": "535", "min": "450.80.02", "flavour": "proprietary"}
OURS = {"packages": [{"name": "cuda-drivers-535", "version": "535.183.01-1", "from": "nvidia"}], "from": ["nvidia"]}
OTHER_BRANCH = {
    "packages": [{"name": "cuda-drivers-550", "version": "550.90.07-1", "from": "nvidia"}],
    "from": ["nvidia"],
}
ARCHIVE = {"packages": [{"name": "nvidia-headless-535-server", "version": "535.1", "from": "distribution"}]}


@pytest.mark.parametrize(
    ("node", "asked", "mode", "objection"),
    [
        (look(), "", "manage", ""),
        (look("apt", "535.183.01", **OURS), "", "manage", ""),
        (look("apt", "550.90.07", **OTHER_BRANCH), "", "keep", ""),
        (look("apt", "550.90.07", **OTHER_BRANCH), "manage", "manage", ""),
        (look("dgx", "535.183.01"), "", "keep", ""),
        (look("dgx", "535.183.01"), "manage", "manage", "DGX release"),
        (look("run", "535.183.01"), "", "keep", ""),
        (look("run", "535.183.01"), "manage", "manage", "nvidia-uninstall"),
        (look("apt", "535.183.01", **ARCHIVE), "", "keep", ""),
        (look("apt", "535.183.01", **ARCHIVE), "manage", "manage", "nvidia-headless-535-server"),
        (look("foreign", "535.183.01"), "manage", "manage", "unknown origin"),
    ],
)
def test_a_driver_that_works_or_is_not_ours_is_kept(
    filters: ModuleType,  # noqa: F811
    node: dict[str, Any],
    asked: str,
    mode: str,
    objection: str,
) -> None:
    assert filters.driver_mode(node, WANTED, asked) == mode
    said = filters.driver_objection(node, mode)
    assert objection in said and bool(said) == bool(objection)


def test_work_on_a_gpu_is_named_and_the_drivers_own_services_are_not(filters: ModuleType) -> None:  # noqa: F811
    node = {**look(), "gpu_users": [{"pid": 7, "name": "nvidia-persiste"}, {"pid": 99, "name": "python3"}]}
    assert filters.gpu_work(node) == "a GPU is in use by python3 (pid 99): stop them first"
    assert filters.gpu_work({**look(), "gpu_users": [{"pid": 7, "name": "nv-hostengine"}]}) == ""
