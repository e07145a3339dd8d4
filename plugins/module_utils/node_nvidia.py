# SPDX-License-Identifier: Apache-2.0
"""NVIDIA hardware and driver of a node, by its own files; nvidia-smi is not needed, and nothing is loaded."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Collection

NVIDIA = "0x10de"
MOST_USERS = 32
# bytes; the PCI standard allows no more
MOST_VPD = 32768
# PCI classes: display controllers, and the bridge that an NVSwitch is
_DISPLAY = ("0x0300", "0x0302")
_BRIDGE = "0x0680"
# the answers that a dressed lab host gives for its hardware, and how lspci shows GPUs and NVSwitches
_RECORDED = "var/lib/nodectl-lab/recorded"
_SHOWN_GPU = re.compile(
    r"^(\S+) (?:VGA compatible|3D) controller: NVIDIA Corporation (?:Device ([0-9a-f]{4}))?", re.MULTILINE
)
_SHOWN_SWITCH = re.compile(r"^\S+ Bridge: NVIDIA Corporation ", re.MULTILINE)
_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


def pci_devices(root: str = "/") -> dict[str, Any]:
    """NVIDIA's GPUs, and whether there is an NVSwitch, from the PCI bus alone."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    gpus, nvswitch = [], False
    for address in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        device = os.path.join(folder, address)
        if read_or(os.path.join(device, "vendor")).strip() != NVIDIA:
            continue
        kind = read_or(os.path.join(device, "class")).strip()[:6]
        nvswitch = nvswitch or kind == _BRIDGE
        if kind in _DISPLAY:
            identity = read_or(os.path.join(device, "device")).strip()
            numa = read_or(os.path.join(device, "numa_node"), "-1").strip()
            gpus.append({"address": address, "device": identity, "numa_node": int(numa or -1)})
    switch_file = os.path.exists(os.path.join(root, "dev/nvidia-nvswitch0"))
    nvlink5 = bool(gpus) and nvlink5_bridge(root)
    return {"gpus": gpus, "nvswitch": nvswitch or switch_file or nvlink5, "nvlink5": nvlink5}


def recorded_hardware(root: str = "/") -> dict[str, Any]:
    """Return a recorded lab host's GPUs, NVSwitches and driver; empty if no recording answers for its hardware."""
    folder = os.path.join(root, _RECORDED)
    if not os.path.exists(os.path.join(folder, "name")):
        return {}
    bus = read_or(os.path.join(folder, "lspci-acs.out"))
    report = read_or(os.path.join(folder, "nvidia-smi-q.out"))
    devices = re.findall(r"Device Id\s*: 0x([0-9A-F]{4})10DE\s+Bus Id\s*: 0000([0-9A-Fa-f:.]+)", report)
    identities = {address.lower(): "0x" + identity.lower() for identity, address in devices}
    gpus = [
        {"address": address, "device": shown or identities.get(address, ""), "numa_node": -1}
        for address, shown in ((match[0], match[1] and "0x" + match[1]) for match in _SHOWN_GPU.findall(bus))
    ]
    loaded_line = read_or(os.path.join(folder, "proc-driver-nvidia.out")).partition("\n")[0]
    match = _VERSION.search(loaded_line)
    flavour = "open" if "Open Kernel" in loaded_line else "proprietary"
    return {
        "gpus": gpus,
        "nvswitch": bool(_SHOWN_SWITCH.search(bus)),
        # whose packages it is was not recorded
        "driver": {
            "version": match.group(1) if match else None,
            "flavour": flavour if match else None,
            "origin": "foreign" if match else "none",
            "from": [],
            "packages": [],
        },
    }


def nvlink5_bridge(root: str = "/") -> bool:
    """Return whether an InfiniBand device manages NVSwitches of NVLink 5 (HGX B200); fabric manager asks the same."""
    for path in glob.glob(os.path.join(root, "sys/class/infiniband/*/device/vpd")):
        with contextlib.suppress(OSError), open(path, "rb") as vpd:
            if b"SW_MNG" in vpd.read(MOST_VPD):
                return True
    return False


def driver(root: str = "/") -> dict[str, Any]:
    """Return the loaded driver (version, flavour), and where the installed one came from.

    origin: none, apt (or dnf; with `from`), run (NVIDIA's own installer), dgx (a DGX release owns it), or foreign.
    """
    loaded_line = read_or(os.path.join(root, "proc/driver/nvidia/version")).partition("\n")[0]
    match = _VERSION.search(loaded_line)
    loaded = match.group(1) if match else read_or(os.path.join(root, "sys/module/nvidia/version")).strip() or None
    flavour = None
    if loaded:
        license_ = read_or(os.path.join(root, "sys/module/nvidia/license")) or loaded_line
        flavour = "open" if "Open Kernel" in loaded_line or "MIT" in license_ else "proprietary"
    installed = sorted(node_packages.kind(root).driver_parts(root), key=lambda package: str(package["name"]))
    origins = {package["from"] for package in installed}
    return {
        "version": loaded,
        "flavour": flavour,
        "origin": _origin(root, bool(loaded), origins),
        "from": sorted(origins),
        "packages": installed,
    }


def _origin(root: str, loaded: bool, origins: Collection[str]) -> str:
    def exists(path: str) -> bool:
        return os.path.exists(os.path.join(root, path))

    if exists("etc/dgx-release"):
        return "dgx"
    if "other" in origins:
        return "foreign"
    if exists("usr/bin/nvidia-uninstall") or exists("usr/bin/nvidia-installer"):
        return "run"
    if origins:
        return "dnf" if node_packages.has_dnf(root) else "apt"
    return "foreign" if loaded else "none"


def users(root: str = "/") -> list[dict[str, Any]]:
    """Return processes that hold a GPU open: [{pid, name}], at most MOST_USERS of them."""
    if not os.path.exists(os.path.join(root, "dev/nvidiactl")):
        return []
    proc, processes = os.path.join(root, "proc"), []
    for pid in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        if len(processes) == MOST_USERS:
            break
        if _holds_gpu(os.path.join(proc, pid, "fd")):
            processes.append({"pid": int(pid), "name": read_or(os.path.join(proc, pid, "comm")).strip()})
    return processes


def _holds_gpu(folder: str) -> bool:
    with contextlib.suppress(OSError):  # the process has ended
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):  # the file was closed
                if re.match(r"/dev/nvidia(\d+|ctl|-uvm)\Z", os.readlink(os.path.join(folder, descriptor))):
                    return True
    return False
