"""RDMA ports of this host as sysfs and libibverbs show them, and what a program may lock and reach."""

import json
import os
import re
import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...common.machine import cpu_list, number, text

INFINIBAND = Path("/sys/class/infiniband")
PCI = Path("/sys/bus/pci/devices")
ROUTES = Path("/proc/net/route")
CAP_IPC_LOCK = 14
VERBS_S = 15.0
# PCI class of an InfiniBand adapter, and the vendor whose Ethernet adapters all do RDMA
INFINIBAND_CLASS, NETWORK_CLASS, MELLANOX, NVIDIA = "0x0207", "0x02", "0x15b3", "0x10de"
DISPLAY_CLASS = "0x03"
VERBS = Path(__file__).with_name("verbs.py")
UNASKED: Dict[str, Any] = {}


def text_of(path: Path) -> Optional[str]:
    """Return None if it is not there, is empty or cannot be read (a GID that is not set is an error)."""
    return text(path) or None


def last_word(path: Path) -> Optional[str]:
    """`4: ACTIVE` is ACTIVE."""
    return text(path).rpartition(":")[2].strip() or None


def gids_of(port: Path) -> List[Dict[str, Any]]:
    """Return the entries that are set."""
    entries = []
    for path in sorted((port / "gids").glob("*"), key=lambda path: int(path.name)):
        gid = text_of(path)
        if not gid or gid.endswith(":0000:0000:0000:0000"):
            continue
        kind = text_of(port / "gid_attrs/types" / path.name)
        netdev = text_of(port / "gid_attrs/ndevs" / path.name)
        entries.append({"index": int(path.name), "gid": gid, "type": kind, "netdev": netdev})
    return entries


def netdev_of(device: Path, port: Path) -> Optional[str]:
    """Return the interface beside an RDMA port."""
    for path in sorted((port / "gid_attrs/ndevs").glob("*"), key=lambda path: int(path.name)):
        name = text_of(path)
        if name:
            return name
    nets = sorted(path for path in device.glob("device/net/*") if path.is_dir())
    mine = [path.name for path in nets if number(path / "dev_port") == int(port.name) - 1]
    return mine[0] if mine else text_of(device / "parent")


def ports() -> List[Dict[str, Any]]:
    """Every port of every device."""
    rows = []
    verbs = query_verbs()
    for port in sorted(INFINIBAND.glob("*/ports/*")):
        device = port.parent.parent
        rate = re.match(r"([\d.]+)\s*Gb/sec", text(port / "rate"))
        netdev = netdev_of(device, port)
        attributes = verbs
        if verbs is not None and verbs is not UNASKED:
            attributes = verbs.get("%s/%s" % (device.name, port.name), {"error": "not listed"})
        rows.append(
            {
                "device": device.name,
                "port": int(port.name),
                "state": last_word(port / "state"),
                "physical_state": last_word(port / "phys_state"),
                "rate_gbit_s": float(rate.group(1)) if rate else None,
                "link_layer": text_of(port / "link_layer"),
                "netdev": netdev,
                "networks": networks_of(netdev),
                "carrier_changes": carrier_changes(netdev),
                "numa_node": number(device / "device/numa_node"),
                "cpus": cpu_list(text(device / "device/local_cpulist")),
                "pci": os.path.realpath(str(device / "device")) if (device / "device").exists() else None,
                "gids": gids_of(port),
                # None: libibverbs is not there; empty: it gave no answer, and perftest will tell
                "verbs": attributes,
            }
        )
    return rows


def networks_of(netdev: Optional[str]) -> List[str]:
    """Return the IPv4 networks that an interface reaches without a router, `192.0.2.0/24`."""
    networks = []
    for line in text(ROUTES).splitlines()[1:]:
        interface, destination, gateway, _, _, _, _, mask, *_ = line.split()
        if interface == netdev and not int(gateway, 16) and int(mask, 16):
            # as the processor has the bytes of an address in memory
            address = socket.inet_ntoa(struct.pack("=I", int(destination, 16)))
            networks.append("%s/%d" % (address, bin(int(mask, 16)).count("1")))
    return networks


def carrier_changes(netdev: Optional[str]) -> Optional[int]:
    """How often an interface has lost or adapters its link."""
    return number(Path("/sys/class/net") / netdev / "carrier_changes") if netdev else None


def state_of(device: str, port: int) -> Dict[str, Any]:
    """Return what may have changed while a test ran."""
    folder = INFINIBAND / device / "ports" / str(port)
    netdev = netdev_of(INFINIBAND / device, folder) if folder.is_dir() else None
    return {"state": last_word(folder / "state"), "carrier_changes": carrier_changes(netdev)}


def packets(device: str, port: int) -> Optional[int]:
    """RDMA packets received so far: of adapters, and of RDMA in software, which counts elsewhere."""
    folder = INFINIBAND / device / "ports" / str(port)
    in_software = number(folder / "hw_counters/rcvd_pkts")
    return number(folder / "counters/port_rcv_packets") if in_software is None else in_software


def query_verbs() -> Optional[Dict[str, Any]]:
    """Each port as a user's program sees it, asked in a process of its own: a sick device can hang or kill it.

    None where libibverbs is not there, UNASKED where it gave no answer.
    """
    argv = [sys.executable, str(VERBS)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=VERBS_S)
        answer: Optional[Dict[str, Any]] = json.loads(done.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return UNASKED
    return answer


def memlock() -> Dict[str, Any]:
    """Return what a program started from here may lock; -1 is no limit. Root's programs are not limited."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", text(Path("/proc/self/status")), re.MULTILINE)
    exempt = bool(match and int(match.group(1), 16) >> CAP_IPC_LOCK & 1)
    return {"soft": soft, "hard": hard, "exempt": exempt}


def adapters_on_bus() -> List[str]:
    """PCI addresses of adapters that can do RDMA, whether or not a driver has them."""
    return [
        path.name
        for path in sorted(PCI.glob("*"))
        if text(path / "class").startswith(INFINIBAND_CLASS)
        or (text(path / "class").startswith(NETWORK_CLASS) and text(path / "vendor") == MELLANOX)
    ]


def gpus() -> Dict[str, Any]:
    """NVIDIA's GPUs that a driver has, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID, and how NICs may reach them."""
    there = [
        path.name
        for path in sorted(PCI.glob("*"))
        if text(path / "vendor") == NVIDIA and text(path / "class").startswith(DISPLAY_CLASS)
    ]
    driven = [place for place in there if (PCI / place / "driver").resolve().name == "nvidia"]
    modules = Path("/sys/module")
    version = text(Path("/proc/driver/nvidia/version"))
    return {
        "on_bus": len(there),
        "paths": [os.path.realpath(str(PCI / place)) for place in driven],
        "peermem": any((modules / name).exists() for name in ("nvidia_peermem", "nv_peer_mem")),
        "open_modules": "Open Kernel Module" in version,
    }
