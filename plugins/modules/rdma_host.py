#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: the RDMA devices of a host, what programs need for them, and the path from the GPU to the NIC."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_host
short_description: Look at RDMA devices, packages and the GPUDirect path
description:
  - Reads sysfs, procfs and dpkg's own files; changes nothing.
  - Says whether GPU memory reaches the NIC by DMA-BUF or needs nvidia-peermem.
author: The nodectl authors (!UNKNOWN)
options:
  packages: {description: Packages that should be there., type: list, elements: str, required: true}
  soft: {description: Interfaces that carry a software device., type: list, elements: str, default: []}
  root: {description: Where sys and proc are., type: path, default: /}
"""
EXAMPLES = r"""
- nodectl.fleet.rdma_host: {packages: [rdma-core]}
"""
RETURN = r"""
missing: {description: Packages that are not installed., type: list, returned: always}
versions: {description: Versions of those that are., type: dict, returned: always}
devices: {description: Each port with state link layer and rate., type: list, elements: dict, returned: always}
path: {description: dma-buf peermem or none, type: str, returned: always}
peermem: {description: The module nvidia-peermem is what this host needs., type: bool, returned: always}
soft_missing: {description: Interfaces whose software device is not there., type: list, returned: always}
soft_possible: {description: The kernel has the module for software devices., type: bool, returned: always}
doca: {description: The role can write DOCA's repository here., type: bool, returned: always}
systemd: {description: systemd is process 1., type: bool, returned: always}
"""

import os
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.packages import there
from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or

DMABUF_KERNEL = (5, 12)
DRIVER = "proc/driver/nvidia/version"


def text_of(path: Path) -> str:
    """Return a file's text without space around it; empty where it cannot be read."""
    return read_or(str(path)).strip()


def ports(root: Path) -> list[dict[str, str]]:
    """Each port of each device, in the kernel's words."""
    rows = []
    for device in sorted((root / "sys/class/infiniband").glob("*")):
        interfaces = sorted(path.name for path in (device / "device/net").glob("*"))
        for port in sorted((device / "ports").glob("*")):
            rows.append(
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
    return rows


def kernel_version(text: str) -> tuple[int, int]:
    """Major and minor of a release such as `6.1.0-18-amd64`; zeros where it names none."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def gpudirect(root: Path, kernel: str) -> dict[str, Any]:
    """Return the path by which GPU memory reaches the NIC, and whether nvidia-peermem is what would open one."""
    driver = text_of(root / DRIVER)
    loaded = (root / "sys/module/nvidia_peermem").is_dir()
    dmabuf = "Open Kernel Module" in driver and kernel_version(kernel) >= DMABUF_KERNEL
    path = "dma-buf" if dmabuf else "peermem" if driver and loaded else "none"
    return {"path": path, "peermem": bool(driver) and not dmabuf, "driver": driver.splitlines()[0] if driver else ""}


def has_module(root: Path, kernel: str, name: str) -> bool:
    """Return whether the running kernel has the module, loaded, built in or on the disk."""
    known = re.sub("[-_]", "[-_]", name)
    folder = root / "lib/modules" / kernel
    texts = (text_of(folder / file) for file in ("modules.dep", "modules.builtin"))
    return (root / "sys/module" / name).is_dir() or any(re.search(rf"/{known}\.ko", text) for text in texts)


def look(wanted: dict[str, Any], kernel: str) -> dict[str, Any]:
    """Everything that is known without changing anything."""
    root = Path(wanted["root"])
    packages = node_packages.installed_now()
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
        "doca": not node_packages.has_dnf(),
        "systemd": (root / "run/systemd/system").is_dir(),
    }


def main() -> None:
    """Report devices, packages and the GPUDirect path of this host."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "soft": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    state = look(module.params, os.uname().release)
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
