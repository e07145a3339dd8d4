"""Whether a driver is managed, and what stands against it."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.test_nvidia_solving import filters  # noqa: F401  a fixture


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


@pytest.mark.parametrize(
    ("vpd", "nvlink5"), [(b"\x82\x00ConnectX-7 SW_MNG\x90", True), (b"\x82\x00ConnectX-7\x90", False)]
)
def test_nvswitches_of_nvlink_5_are_seen_behind_their_bridge(
    utils: Any, tmp_path: Path, vpd: bytes, nvlink5: bool
) -> None:
    """HGX B200 has GPUs on its bus, and no NVSwitch."""
    gpu, bridge = tmp_path / "sys/bus/pci/devices/0000:1b:00.0", tmp_path / "sys/class/infiniband/mlx5_0/device"
    for folder in (gpu, bridge):
        folder.mkdir(parents=True)
    (bridge / "vpd").write_bytes(vpd)
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2901"), ("numa_node", "0")):
        (gpu / name).write_text(f"{text}\n")
    seen = utils("node_nvidia").pci_devices(str(tmp_path))
    assert (seen["nvswitch"], seen["nvlink5"]) == (nvlink5, nvlink5)
