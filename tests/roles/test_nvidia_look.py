"""Whether a driver is managed, and what stands against it."""

# ruff: noqa: F811  the fixture that is imported

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nodectl.profiles.host_compat import HostLook
from nodectl.profiles.resolve import resolve
from tests.profiles.test_node_look import Root
from tests.roles.test_nvidia_solving import filters  # noqa: F401  a fixture


def look(origin: str = "none", version: str | None = None, **more: Any) -> dict[str, Any]:
    driver: dict[str, Any] = {"version": version, "origin": origin, "packages": [], "from": [], "flavour": None}
    return {"driver": {**driver, **more}, "gpu_users": []}


WANTED = {"branch": "535", "min": "450.80.02", "flavour": "proprietary"}
OURS = {"packages": [{"name": "cuda-drivers-535", "version": "535.183.01-1", "from": "nvidia"}], "from": ["nvidia"]}
OTHER_BRANCH = {"packages": [{"name": "cuda-drivers-550", "version": "550.90.07-1", "from": "nvidia"}]}
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
    filters: ModuleType, node: dict[str, Any], asked: str, mode: str, objection: str
) -> None:
    assert filters.driver_mode(node, WANTED, asked) == mode
    said = filters.driver_objection(node, mode)
    assert objection in said and bool(said) == bool(objection)
    named = filters.driver_objection(node, mode, {"names": ["nvidia-headless-535-server"]})
    assert bool(named) == (bool(objection) and "headless" not in objection)


def test_work_on_a_gpu_is_named_and_the_drivers_own_services_are_not(filters: ModuleType) -> None:
    node = {**look(), "gpu_users": [{"pid": 7, "name": "nvidia-persiste"}, {"pid": 99, "name": "python3"}]}
    assert filters.gpu_work(node) == "a GPU is in use by python3 (pid 99): stop them first"
    served = [{"pid": 7, "name": "nv-hostengine"}, {"pid": 8, "name": "dcgm-exporter"}]
    assert filters.gpu_work({**look(), "gpu_users": served}) == ""


@pytest.mark.parametrize(
    ("vpd", "nvlink5"), [("\x82\x00ConnectX-7 SW_MNG\x90", True), ("\x82\x00ConnectX-7\x90", False)]
)
def test_nvswitches_of_nvlink_5_are_seen_behind_their_bridge(tmp_path: Path, vpd: str, nvlink5: bool) -> None:
    """HGX B200 has GPUs on its bus, and no NVSwitch."""
    root = Root(tmp_path)
    root.device("0000:1b:00.0", "0x10de", "0x030200", "0x2901")
    root.write("sys/class/infiniband/mlx5_0/device/vpd", vpd)
    seen = root.look()
    assert (seen["nvswitch"], seen["nvlink5"]) == (nvlink5, nvlink5)


BOOT = {"kernel": "6.8.0-100-generic", "headers": True, "free_mib": 500, "needed_mib": 90, "held": []}


@pytest.mark.parametrize(
    ("node", "boot", "signed", "said"),
    [
        ({}, {}, False, ""),
        ({"secure_boot": True}, {}, False, "mokutil --import"),
        ({"secure_boot": True}, {}, True, ""),
        ({}, {"free_mib": 80}, False, "/boot has 80 MiB free"),
        ({"kernel": "5.15.167.4-microsoft-standard-WSL2"}, {}, False, "WSL2"),
        ({}, {"held": ["linux-headers-generic"]}, False, ""),
        ({}, {"held": ["linux-headers-generic"], "headers": False}, False, "linux-headers-generic is held"),
        ({}, {"free_mib": None, "needed_mib": 0, "kernel": ""}, False, ""),
    ],
)
def test_what_would_keep_a_new_driver_from_loading_is_said_before(
    filters: ModuleType, node: dict[str, Any], boot: dict[str, Any], signed: bool, said: str
) -> None:
    host = {**look(), "kernel": "6.8.0-45-generic", "boot": BOOT | boot, **node}
    obstacles = filters.driver_obstacles(host, "manage", WANTED, signed)
    assert said in "; ".join(obstacles) and bool(obstacles) == bool(said)
    assert not filters.driver_obstacles(host, "keep", WANTED)
    assert not filters.driver_obstacles({**host, "container": "systemd-nspawn"}, "manage", WANTED)
    there = look("apt", "535.183.01", **OURS)
    assert not filters.driver_obstacles({**host, "driver": there["driver"]}, "manage", WANTED), "it is there"


def test_headers_are_those_of_the_kernel_that_the_next_boot_starts(filters: ModuleType) -> None:
    host = {**look(), "kernel": "6.8.0-45-generic", "nouveau": True, "boot": BOOT | {"headers": False}}
    assert filters.driver_headers(host) == ["linux-headers-6.8.0-100-generic"]
    assert filters.driver_headers({**host, "boot": BOOT}) == []
    notes = "; ".join(filters.driver_notes(host, "manage", WANTED))
    assert "nouveau is loaded" in notes and "starts kernel 6.8.0-100-generic, not 6.8.0-45" in notes


def test_the_next_boot_is_read_from_the_files(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for name in ("vmlinuz-6.8.0-45-generic", "vmlinuz-6.8.0-100-generic", "initrd.img-6.8.0-45-generic"):
        root.write(f"boot/{name}", "x" * (8 << 20) if "initrd" in name else "")
    root.write("lib/modules/6.8.0-45-generic/build/Makefile")
    root.write("proc/sys/kernel/osrelease", "6.8.0-45-generic")
    root.packages(("linux-image-generic", "6.8", "x"), status="hold ok installed")
    boot = root.look()["boot"]
    assert (boot["kernel"], boot["headers"]) == ("6.8.0-100-generic", False)
    assert boot["needed_mib"] == 10 and boot["free_mib"] is not None and boot["held"] == ["linux-image-generic"]


def family(system: str, version: str) -> dict[str, Any]:
    """What the roles are told of a host's distribution."""
    look_at = HostLook.create({"os": {"id": system, "version": version}})
    told: dict[str, Any] = resolve("unknown", "none", "stock", look=look_at).as_variables()["family"]
    return told


@pytest.mark.parametrize(
    ("system", "version", "flavour", "modules", "node", "said"),
    [
        ("ubuntu", "24.04", "open", "precompiled", {"secure_boot": True}, ""),
        ("ubuntu", "24.04", "open", "dkms", {"secure_boot": True}, "(linux-modules-nvidia-580-server-open-...)"),
        ("ubuntu", "24.04", "open", "precompiled", {}, ""),
        ("debian", "12", "open", "precompiled", {}, "for debian-12: set nvidia_driver_modules to dkms"),
        ("debian", "12", "open", "dkms", {"secure_boot": True}, "set nvidia_driver_signed"),
        ("rocky", "9.8", "open", "precompiled", {}, "set nodectl_overrides: {stack: {driver: {flavour: proprietary}}}"),
        ("rocky", "9.8", "proprietary", "precompiled", {"secure_boot": True}, "NVIDIA's key, which signs them"),
        ("rocky", "9.8", "proprietary", "precompiled", {}, ""),
        ("rocky", "10.1", "proprietary", "precompiled", {}, "nobody builds precompiled modules for rocky-10"),
    ],
)
def test_who_builds_the_modules_is_a_choice_that_is_judged_before(
    filters: ModuleType, system: str, version: str, flavour: str, modules: str, node: dict[str, Any], said: str
) -> None:
    wanted = {"branch": "580", "min": "525", "flavour": flavour}
    there = family(system, version)
    key = "-".join((system, version))
    host = {**look(), "os": {"key": key}, "kernel": "6.8.0-45-generic", "boot": BOOT | {"headers": False}, **node}
    chosen = filters.wanted_driver(wanted, host, modules, there)
    obstacles = filters.driver_obstacles(host, "manage", chosen, False, there)
    assert said in "; ".join(obstacles) and bool(obstacles) == bool(said), obstacles
    assert "precompiled" not in "; ".join(obstacles) or system != "debian" or modules == "precompiled"
    packages = filters.asked_packages({"driver": chosen}, host, "manage", False, there)
    asked = [name for each in packages for name in each["names"]]
    built = {"linux-headers-6.8.0-100-generic", "kernel-devel-6.8.0-100-generic", "dkms"}
    assert bool(built & {*asked}) == (modules == "dkms" or "refused" in chosen)


def test_a_kept_driver_that_is_not_precompiled_is_said(filters: ModuleType) -> None:
    host = {**look("apt", "535.183.01", **OURS), "os": {"key": "ubuntu-22.04"}, "kernel": "5.15.0-100-generic"}
    chosen = filters.wanted_driver(WANTED, host, "precompiled", family("ubuntu", "22.04"))
    assert filters.driver_mode(host, chosen) == "keep", "NVIDIA's own is not Canonical's"
    assert filters.driver_notes(host, "keep", chosen) == [
        "nvidia_driver_modules is precompiled, and the driver here is kept as it is (nvidia_driver_mode)"
    ]
    assert "another source than the distribution" in filters.driver_objection(host, "manage", chosen)
