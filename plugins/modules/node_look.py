#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what a node is, as far as a driver or a stack depends on it; reads, and changes nothing."""

from __future__ import annotations

import glob
import os
import platform
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or
from ansible_collections.nodectl.fleet.plugins.module_utils.node_nvidia import (
    driver,
    pci_devices,
    recorded_hardware,
    users,
)

# the initial file system of a kernel: Debian's and RHEL's name
_INITIAL = re.compile(r"initrd\.img-|initramfs-(?!0-rescue).+\.img\Z")
_RESCUE = "0-rescue"
_KERNEL = re.compile(r"linux-(image|headers|generic)|kernel(-core|-devel)?-\d|kernel\Z")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# the first kernel that hands GPU memory to a NIC by DMA-BUF, for which the driver's open modules are needed
_DMABUF_KERNEL = (5, 12)
# process names, as the kernel cuts them at 15 characters
_CLOCK_KEEPERS = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntp",
    "ptp4l": "linuxptp",
    "phc2sys": "linuxptp",
}
# inode of the first PID namespace (PROC_PID_INIT_INO of the kernel): whoever lives in another shares a machine's clock
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


def operating_system(root: str) -> dict[str, str]:
    """`id` and `version` of os-release, and both in one key such as ubuntu-22.04 or rocky-9."""
    text = read_or(os.path.join(root, "etc/os-release")) or read_or(os.path.join(root, "usr/lib/os-release"))
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name, version, platform_id = (
        fields.get(key, "").strip().strip("\"'") for key in ("ID", "VERSION_ID", "PLATFORM_ID")
    )
    # a minor version of RHEL's kind is an update of the same system
    release = version.partition(".")[0] if platform_id.startswith("platform:el") else version
    return {"id": name, "version": version, "key": "-".join(filter(None, (name, release)))}


def rdma_devices(root: str) -> list[str]:
    """Names of the RDMA devices, without EFA's, which speak no verbs that NCCL itself could use."""
    drivers = {
        os.path.basename(os.path.dirname(os.path.dirname(path))): os.path.basename(os.path.realpath(path))
        for path in glob.glob(os.path.join(root, "sys/class/infiniband/*/device/driver"))
    }
    folder = os.path.join(root, "sys/class/infiniband")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name for name in names if drivers.get(name) != "efa"]


def gpudirect(root: str, kernel: str, flavour: str | None) -> str:
    """Return the path by which GPU memory reaches a NIC: dma-buf, peermem, or none."""
    version = tuple(int(part) for part in re.findall(r"\d+", kernel)[:2])
    if flavour == "open" and version >= _DMABUF_KERNEL:
        return "dma-buf"
    return "peermem" if flavour and os.path.isdir(os.path.join(root, "sys/module/nvidia_peermem")) else "none"


def clock(root: str) -> dict[str, Any]:
    """Return the running time service, and whether the clock is the host's own: a container has its machine's."""
    names = {read_or(path).strip() for path in glob.glob(os.path.join(root, "proc/[0-9]*/comm"))}
    keepers = sorted(_CLOCK_KEEPERS[name] for name in names & set(_CLOCK_KEEPERS))
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return {"keeper": keepers[0] if keepers else "", "settable": namespace == _FIRST_PID_NAMESPACE}


def container(root: str) -> str | None:
    """Return the kind of container, or None; /run/host is systemd's and podman's way to tell."""
    kind = read_or(os.path.join(root, "run/host/container-manager")) or read_or(
        os.path.join(root, "run/systemd/container")
    )
    if kind.strip():
        return kind.strip()
    for path, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if os.path.exists(os.path.join(root, path)):
            return kind
    return None


def secure_boot(root: str) -> bool | None:
    """Return True, False, or None if the firmware has no such thing."""
    try:
        with open(os.path.join(root, _SECURE_BOOT), "rb") as handle:
            return handle.read()[-1:] == b"\x01"
    except OSError:
        return None


def boot(root: str, running: str) -> dict[str, Any]:
    """Return what the next boot starts: the newest kernel, as GRUB takes it.

    Its headers, /boot's room, what is held.
    """
    folder = os.path.join(root, "boot")
    files = os.listdir(folder) if os.path.isdir(folder) else []
    releases = (name[len("vmlinuz-") :] for name in files if name.startswith("vmlinuz-"))
    kernels = sorted((kernel for kernel in releases if not kernel.startswith(_RESCUE)), key=_in_order)
    kernel = kernels[-1] if kernels else ""
    images = [os.path.getsize(os.path.join(folder, name)) for name in files if _INITIAL.match(name)]
    room = os.statvfs(folder) if images else None
    kept = node_packages.kind(root).installed_now(root).items()
    held = sorted(key.split(":")[0] for key, package in kept if package["selection"] == "hold" and _KERNEL.match(key))
    return {
        "kernel": kernel,
        "headers": os.path.isdir(os.path.join(root, "lib/modules", kernel or running, "build")),
        "free_mib": room.f_bavail * room.f_frsize >> 20 if room else None,
        # a driver's modules come into it, and the old one stays until the new one is whole
        "needed_mib": int(max(images, default=0) * 1.25) >> 20,
        "held": held,
    }


def _in_order(release: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", release)]


def booted_at(root: str) -> int:
    """Return when process 1 began, in seconds since 1970, or 0; the kernel's boot is the machine's in a container."""
    since_boot = re.search(r"^btime (\d+)$", read_or(os.path.join(root, "proc/stat")), re.MULTILINE)
    fields = read_or(os.path.join(root, "proc/1/stat")).rpartition(")")[2].split()
    if not since_boot or len(fields) < 20:
        return 0
    return int(since_boot.group(1)) + int(fields[19]) // os.sysconf("SC_CLK_TCK")


def look(root: str) -> dict[str, Any]:
    """Everything that the module tells, without what was recorded."""
    kernel = read_or(os.path.join(root, "proc/sys/kernel/osrelease")).strip() or platform.release()
    loaded = driver(root)
    # a lab host sees the machine's devices, and may use none
    in_lab = os.path.exists(os.path.join(root, "etc/nodectl-lab"))
    devices = pci_devices(root) if not in_lab else {"gpus": [], "nvswitch": False, "nvlink5": False}
    return {
        "os": operating_system(root),
        "architecture": platform.machine(),
        "kernel": kernel,
        "boot": boot(root, kernel),
        "gpus": devices["gpus"],
        "nvswitch": devices["nvswitch"],
        "nvlink5": devices["nvlink5"],
        "driver": loaded,
        # a recording of other hardware does not tell
        "rdma": rdma_devices(root) if not recorded_hardware(root) else None,
        "gpudirect": gpudirect(root, kernel, loaded["flavour"]),
        "gpu_users": users(root),
        "packages": "dnf" if node_packages.has_dnf(root) else "apt",
        "clock": clock(root),
        "nouveau": os.path.isdir(os.path.join(root, "sys/module/nouveau")),
        "systemd": os.path.isdir(os.path.join(root, "run/systemd/system")),
        "container": container(root),
        "secure_boot": secure_boot(root),
        "booted_at": booted_at(root),
        "nr_open": read_or(os.path.join(root, "proc/sys/fs/nr_open")).strip(),
    }


def main() -> None:
    """Look, and put what was recorded over what was found."""
    module = AnsibleModule(
        argument_spec={"recorded": {"type": "dict", "default": {}}, "root": {"type": "path", "default": "/"}},
        supports_check_mode=True,
    )
    looked = look(module.params["root"])
    recorded = {**recorded_hardware(module.params["root"]), **module.params["recorded"]}
    unknown = sorted(set(recorded) - set(looked))
    if unknown:
        module.fail_json(
            msg="nodectl_recorded_look: no such key: %s; known: %s" % (", ".join(unknown), ", ".join(sorted(looked)))
        )
    for key, value in recorded.items():
        both = isinstance(value, dict) and isinstance(looked[key], dict)
        looked[key] = {**looked[key], **value} if both else value
    # named, so that nobody takes them for live ones
    module.exit_json(changed=False, node={**looked, "recorded": sorted(recorded)})


if __name__ == "__main__":
    main()
