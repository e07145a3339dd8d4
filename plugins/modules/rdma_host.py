#!/usr/bin/python
"""Ansible module: the RDMA devices of a host, what programs need for them, and the path from the GPU to the NIC."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.apt.packages import installed_now, there
from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding, not_settable

DOCUMENTATION = r"""
module: rdma_host
short_description: Look at RDMA devices, packages and the GPUDirect path
description:
  - Reads sysfs, procfs and dpkg's own files; changes nothing.
  - Says whether GPU memory reaches the NIC by DMA-BUF or needs nvidia-peermem.
author: The nodectl authors
options:
  packages: {description: Packages that should be there., type: list, elements: str, required: true}
  devices: {description: An RDMA device is expected., type: bool, default: false}
  gpus: {description: GPUs are expected., type: bool, default: false}
  soft: {description: Interfaces that carry a software device., type: list, elements: str, default: []}
  root: {description: Where sys and proc are., type: path, default: /}
"""
EXAMPLES = r"""
- rdma_host: {packages: [rdma-core], devices: true, gpus: true}
"""
RETURN = r"""
missing: {description: Packages that are not installed., type: list, returned: always}
versions: {description: Versions of those that are., type: dict, returned: always}
devices: {description: Each port with state link layer and rate., type: list, elements: dict, returned: always}
path: {description: dma-buf peermem or none, type: str, returned: always}
peermem: {description: The module nvidia-peermem is what this host needs., type: bool, returned: always}
soft_missing: {description: Interfaces whose software device is not there., type: list, returned: always}
soft_possible: {description: The kernel has the module for software devices., type: bool, returned: always}
systemd: {description: systemd is process 1., type: bool, returned: always}
findings: {description: What a verify task tells., type: list, elements: dict, returned: always}
"""

DMABUF_KERNEL = (5, 12)
DRIVER = "proc/driver/nvidia/version"


def text_of(path: Path) -> str:
    """First line of a file; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def ports(root: Path) -> list[dict[str, str]]:
    """Each port of each device, in the kernel's words."""
    found = []
    for device in sorted((root / "sys/class/infiniband").glob("*")):
        interfaces = sorted(path.name for path in (device / "device/net").glob("*"))
        for port in sorted((device / "ports").glob("*")):
            found.append(
                {
                    "device": device.name,
                    "port": port.name,
                    "state": text_of(port / "state").rpartition(": ")[2],
                    "physical": text_of(port / "phys_state").rpartition(": ")[2],
                    "link_layer": text_of(port / "link_layer"),
                    "rate": text_of(port / "rate"),
                    "interface": ",".join(interfaces) or text_of(port / "gid_attrs/ndevs/0"),
                }
            )
    return found


def kernel_version(text: str) -> tuple[int, int]:
    """(6, 1) of `6.1.0-18-amd64`."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def gpudirect(root: Path, kernel: str) -> dict[str, Any]:
    """By which path GPU memory can reach the NIC, and whether nvidia-peermem is what would open one."""
    driver = text_of(root / DRIVER)
    loaded = (root / "sys/module/nvidia_peermem").is_dir()
    dmabuf = "Open Kernel Module" in driver and kernel_version(kernel) >= DMABUF_KERNEL
    path = "dma-buf" if dmabuf else "peermem" if driver and loaded else "none"
    return {"path": path, "peermem": bool(driver) and not dmabuf, "driver": driver.splitlines()[0] if driver else ""}


def has_module(root: Path, kernel: str, name: str) -> bool:
    """The running kernel has the module, loaded, built in or on the disk."""
    known = re.sub("[-_]", "[-_]", name)
    folder = root / "lib/modules" / kernel
    texts = (text_of(folder / file) for file in ("modules.dep", "modules.builtin"))
    return (root / "sys/module" / name).is_dir() or any(re.search(rf"/{known}\.ko", text) for text in texts)


def judge(state: dict[str, Any], wanted: dict[str, Any]) -> list[dict[str, str]]:
    """What is there against what should be."""
    again = "run nodectl provision --tags rdma"
    findings = []
    for name in wanted["packages"]:
        version = state["versions"].get(name)
        status = "ok" if version else "failed"
        findings.append(
            finding("rdma", status, name, expected="installed", actual=version or "not installed", remedy=again)
        )
    if wanted["devices"] and not state["devices"]:
        remedy = "see lspci and dmesg for the adapter, and whether its driver (mlx5_core) is loaded"
        findings.append(finding("rdma", "failed", "devices", expected="an RDMA device", actual="none", remedy=remedy))
    for port in state["devices"]:
        status = "ok" if port["state"] == "ACTIVE" else "warning"
        actual = f"{port['state']}, {port['physical']}, {port['link_layer']}, {port['rate']}"
        remedy = "see the cable and the switch; InfiniBand needs a subnet manager"
        subject = f"{port['device']}/{port['port']}"
        findings.append(finding("rdma", status, subject, expected="ACTIVE", actual=actual, remedy=remedy))
    if wanted["gpus"] and wanted["devices"]:
        findings.append(judge_path(state))
    for interface in wanted["soft"]:
        findings.append(judge_soft(state, interface))
    return findings


def judge_path(state: dict[str, Any]) -> dict[str, str]:
    """From the GPU's memory to the NIC."""
    expected = "dma-buf, or nvidia_peermem loaded"
    if not state["driver"]:
        actual = "no NVIDIA driver is loaded, so nothing can be said"
        return finding(
            "rdma", "unknown", "GPUDirect", expected=expected, actual=actual, remedy="see the driver's findings"
        )
    status = "ok" if state["path"] != "none" else "failed"
    actual = {"none": "nvidia_peermem is not loaded"}.get(state["path"], state["path"])
    remedy = "modprobe nvidia-peermem, or open kernel modules with a kernel from 5.12 on"
    return finding("rdma", status, "GPUDirect", expected=expected, actual=actual, remedy=remedy)


def judge_soft(state: dict[str, Any], interface: str) -> dict[str, str]:
    """A software device for tests."""
    subject, expected = f"rxe_{interface}", f"a software device on {interface}"
    if interface not in state["soft_missing"]:
        return finding("rdma", "ok", subject, expected=expected, actual="there")
    if not state["soft_possible"]:
        return not_settable("rdma", subject, expected, "its kernel has no module rdma_rxe")
    if not state["systemd"]:
        return not_settable("rdma", subject, expected, "no systemd to bring it up at boot")
    remedy = f"systemctl status nodectl-rxe@{interface}"
    return finding("rdma", "failed", subject, expected=expected, actual="not there", remedy=remedy)


def look(wanted: dict[str, Any], kernel: str) -> dict[str, Any]:
    """Everything that is known without changing anything."""
    root = Path(wanted["root"])
    packages = installed_now()
    versions = {name: packages[name]["version"] for name in wanted["packages"] if there(packages.get(name))}
    return {
        "missing": [name for name in wanted["packages"] if name not in versions],
        "versions": versions,
        "devices": ports(root),
        **gpudirect(root, kernel),
        "soft_missing": [
            name for name in wanted["soft"] if not (root / "sys/class/infiniband" / f"rxe_{name}").exists()
        ],
        "soft_possible": has_module(root, kernel, "rdma_rxe"),
        "systemd": (root / "run/systemd/system").is_dir(),
    }


def main() -> None:
    """Look, compare, report."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "devices": {"type": "bool", "default": False},
            "gpus": {"type": "bool", "default": False},
            "soft": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    state = look(module.params, os.uname().release)
    module.exit_json(changed=False, findings=judge(state, module.params), **state)


if __name__ == "__main__":
    main()
