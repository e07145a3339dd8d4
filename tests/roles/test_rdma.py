"""RDMA devices, ports and the path from the GPU, from a tree in the kernel's own form."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06\nGCC version: 12\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"


@pytest.fixture(scope="module")
def rdma(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("rdma", "rdma_host")


def device(
    root: Path, name: str, state: str = "4: ACTIVE", layer: str = "InfiniBand", rate: str = "200 Gb/sec (4X HDR)"
) -> None:
    port = root / "sys/class/infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    texts = {"state": state, "phys_state": "5: LinkUp", "link_layer": layer, "rate": rate}
    for field, text in texts.items():
        (port / field).write_text(text + "\n")


def driver(root: Path, text: str, peermem: bool = False) -> None:
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(text)
    if peermem:
        (root / "sys/module/nvidia_peermem").mkdir(parents=True)


def test_each_port_is_told_in_the_kernels_words(rdma: ModuleType, tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0")
    device(tmp_path, "rxe_eth0", state="1: DOWN", layer="Ethernet", rate="2.5 Gb/sec (1X SDR)")
    first, second = rdma.ports(tmp_path)
    assert (first["device"], first["state"], first["physical"]) == ("mlx5_0", "ACTIVE", "LinkUp")
    assert (first["link_layer"], first["rate"]) == ("InfiniBand", "200 Gb/sec (4X HDR)")
    assert (second["device"], second["state"], second["link_layer"]) == ("rxe_eth0", "DOWN", "Ethernet")


@pytest.mark.parametrize(
    ("text", "kernel", "loaded", "path", "needs_peermem"),
    [
        (OPEN, "6.1.0-18-amd64", False, "dma-buf", False),
        (OPEN, "5.12.0", True, "dma-buf", False),
        (OPEN, "5.4.0-190-generic", False, "none", True),
        (CLOSED, "6.1.0-18-amd64", False, "none", True),
        (CLOSED, "6.1.0-18-amd64", True, "peermem", True),
        ("", "6.1.0-18-amd64", False, "none", False),
    ],
)
def test_dma_buf_comes_before_peermem(
    rdma: ModuleType, tmp_path: Path, text: str, kernel: str, loaded: bool, path: str, needs_peermem: bool
) -> None:
    if text:
        driver(tmp_path, text, loaded)
    found = rdma.gpudirect(tmp_path, kernel)
    assert (found["path"], found["peermem"]) == (path, needs_peermem)


def test_a_module_is_found_under_either_spelling(rdma: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "lib/modules/6.1.0"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/net/udp_tunnel.ko\n")
    assert rdma.has_module(tmp_path, "6.1.0", "rdma_rxe") and rdma.has_module(tmp_path, "6.1.0", "rdma-rxe")
    assert not rdma.has_module(tmp_path, "6.1.0", "rdma_rx") and not rdma.has_module(tmp_path, "5.4.0", "rdma_rxe")


def look(tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    wanted = {"packages": ["dpkg"], "root": str(tmp_path), **arguments}
    return run_module("plugins/modules/rdma_host.py", wanted, folder=tmp_path)


def test_the_live_host_is_looked_at_and_nothing_is_changed(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0")
    driver(tmp_path, CLOSED)
    answer = look(tmp_path, packages=["dpkg", "no-such-package"], soft=["eth0"])
    assert not answer["changed"] and answer["missing"] == ["no-such-package"] and answer["versions"]["dpkg"]
    assert [port["device"] for port in answer["devices"]] == ["mlx5_0"] and answer["path"] == "none"
    assert answer["soft_missing"] == ["eth0"] and not answer["soft_possible"]
