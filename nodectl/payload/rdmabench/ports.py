"""RDMA ports of this host as sysfs and libibverbs show them, and what a program may lock and reach."""

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

INFINIBAND = Path("/sys/class/infiniband")
PCI = Path("/sys/bus/pci/devices")
CAP_IPC_LOCK = 14
VERBS_S = 15.0
# PCI class of an InfiniBand adapter, and the vendor whose Ethernet adapters all do RDMA
INFINIBAND_CLASS, NETWORK_CLASS, MELLANOX, NVIDIA = "0x0207", "0x02", "0x15b3", "0x10de"
DISPLAY_CLASS = "0x03"
MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
# struct ibv_port_attr: state, max_mtu, active_mtu, then what is not needed here
PORT_ATTR_BYTES = 256
UNASKED: Dict[str, Any] = {}


def text_of(path: Path) -> Optional[str]:
    """None where it is not there or cannot be read (a GID that is not set is an error)."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def word(text: Optional[str]) -> Optional[str]:
    """`4: ACTIVE` is ACTIVE."""
    return None if text is None else text.rpartition(":")[2].strip()


def cpus_of(text: Optional[str]) -> List[int]:
    """`0-3,8` as numbers."""
    found = []
    for part in (text or "").split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit():
            found += list(range(int(low), int(high or low) + 1))
    return found


def gids_of(port: Path) -> List[Dict[str, Any]]:
    """The entries that are set."""
    found = []
    for path in sorted((port / "gids").glob("*"), key=lambda each: int(each.name)):
        gid = text_of(path)
        if not gid or gid.endswith(":0000:0000:0000:0000"):
            continue
        kind = text_of(port / "gid_attrs/types" / path.name)
        netdev = text_of(port / "gid_attrs/ndevs" / path.name)
        found.append({"index": int(path.name), "gid": gid, "type": kind, "netdev": netdev})
    return found


def netdev_of(device: Path, port: Path) -> Optional[str]:
    """The interface beside an RDMA port."""
    for path in sorted((port / "gid_attrs/ndevs").glob("*"), key=lambda each: int(each.name)):
        name = text_of(path)
        if name:
            return name
    nets = sorted(path for path in device.glob("device/net/*") if path.is_dir())
    mine = [path.name for path in nets if text_of(path / "dev_port") == str(int(port.name) - 1)]
    return mine[0] if mine else text_of(device / "parent")


def ports() -> List[Dict[str, Any]]:
    """Every port of every device."""
    found = []
    verbs = query_verbs()
    for port in sorted(INFINIBAND.glob("*/ports/*")):
        device = port.parent.parent
        rate = re.match(r"([\d.]+)\s*Gb/sec", text_of(port / "rate") or "")
        netdev = netdev_of(device, port)
        numa = text_of(device / "device/numa_node")
        attributes = verbs
        if verbs is not None and verbs is not UNASKED:
            attributes = verbs.get("%s/%s" % (device.name, port.name), {"error": "not listed"})
        found.append(
            {
                "device": device.name,
                "port": int(port.name),
                "state": word(text_of(port / "state")),
                "physical_state": word(text_of(port / "phys_state")),
                "rate_gbit_s": float(rate.group(1)) if rate else None,
                "link_layer": text_of(port / "link_layer"),
                "netdev": netdev,
                "carrier_changes": carrier_changes(netdev),
                "numa_node": int(numa) if numa and numa.isdigit() else None,
                "cpus": cpus_of(text_of(device / "device/local_cpulist")),
                "pci": os.path.realpath(str(device / "device")) if (device / "device").exists() else None,
                "gids": gids_of(port),
                # None: libibverbs is not there; empty: it gave no answer, and perftest will tell
                "verbs": attributes,
            }
        )
    return found


def carrier_changes(netdev: Optional[str]) -> Optional[int]:
    """How often an interface has lost or found its link."""
    told = text_of(Path("/sys/class/net") / netdev / "carrier_changes") if netdev else None
    return int(told) if told and told.isdigit() else None


def state_of(device: str, port: int) -> Dict[str, Any]:
    """What may have changed while a test ran."""
    folder = INFINIBAND / device / "ports" / str(port)
    netdev = netdev_of(INFINIBAND / device, folder) if folder.is_dir() else None
    return {"state": word(text_of(folder / "state")), "carrier_changes": carrier_changes(netdev)}


def packets(device: str, port: int) -> Optional[int]:
    """RDMA packets received so far: of adapters, and of RDMA in software, which counts elsewhere."""
    folder = INFINIBAND / device / "ports" / str(port)
    for path in (folder / "hw_counters/rcvd_pkts", folder / "counters/port_rcv_packets"):
        told = text_of(path)
        if told and told.isdigit():
            return int(told)
    return None


def query_verbs() -> Optional[Dict[str, Any]]:
    """Each port as a user's program sees it, asked in a process of its own: a sick device can hang or kill it.

    None where libibverbs is not there, UNASKED where it gave no answer.
    """
    argv = [sys.executable, str(Path(__file__).resolve())]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=VERBS_S)
        answer: Optional[Dict[str, Any]] = json.loads(done.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return UNASKED
    return answer


def ask_verbs() -> Optional[Dict[str, Any]]:
    """`device/port` → MTUs, or the error with which the device could not be opened; None without libibverbs."""
    try:
        verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    except OSError:
        return None
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    verbs.ibv_query_port.argtypes = [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p]
    count = ctypes.c_int(0)
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    found: Dict[str, Any] = {}
    for number in range(count.value if listed else 0):
        name = verbs.ibv_get_device_name(listed[number]).decode()
        numbers = sorted(int(path.name) for path in (INFINIBAND / name / "ports").glob("*"))
        ctypes.set_errno(0)
        context = verbs.ibv_open_device(listed[number])
        for port in numbers:
            if context:
                found["%s/%d" % (name, port)] = attributes_of(verbs, context, port)
            else:
                found["%s/%d" % (name, port)] = {"error": os.strerror(ctypes.get_errno() or 5)}
    return found


def attributes_of(verbs: Any, context: int, port: int) -> Dict[str, Any]:
    """The MTUs of one port."""
    answer = ctypes.create_string_buffer(PORT_ATTR_BYTES)
    if verbs.ibv_query_port(context, port, answer):
        return {"error": "the port cannot be queried"}
    _, largest, active = ctypes.cast(answer, ctypes.POINTER(ctypes.c_int))[:3]
    return {"mtu": MTU_BYTES.get(active), "mtu_max": MTU_BYTES.get(largest)}


def memlock() -> Dict[str, Any]:
    """What a program started from here may lock; -1 is no limit. Root's programs are not limited."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", text_of(Path("/proc/self/status")) or "", re.MULTILINE)
    exempt = bool(match and int(match.group(1), 16) >> CAP_IPC_LOCK & 1)
    return {"soft": soft, "hard": hard, "exempt": exempt}


def adapters_on_bus() -> List[str]:
    """PCI addresses of adapters that can do RDMA, whether or not a driver has them."""
    found = []
    for path in sorted(PCI.glob("*")):
        kind, vendor = text_of(path / "class") or "", text_of(path / "vendor") or ""
        if kind.startswith(INFINIBAND_CLASS) or (kind.startswith(NETWORK_CLASS) and vendor == MELLANOX):
            found.append(path.name)
    return found


def gpus() -> Dict[str, Any]:
    """NVIDIA's GPUs that a driver has, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID, and how NICs may reach them."""
    there = [
        path.name
        for path in sorted(PCI.glob("*"))
        if text_of(path / "vendor") == NVIDIA and (text_of(path / "class") or "").startswith(DISPLAY_CLASS)
    ]
    driven = [each for each in there if (PCI / each / "driver").resolve().name == "nvidia"]
    modules = Path("/sys/module")
    version = text_of(Path("/proc/driver/nvidia/version")) or ""
    return {
        "on_bus": len(there),
        "paths": [os.path.realpath(str(PCI / each)) for each in driven],
        "peermem": any((modules / name).exists() for name in ("nvidia_peermem", "nv_peer_mem")),
        "open_modules": "Open Kernel Module" in version,
    }


if __name__ == "__main__":
    print(json.dumps(ask_verbs()), flush=True)
