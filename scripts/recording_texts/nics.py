"""The network interfaces of a machine, as `ip` and sysfs show them."""

from __future__ import annotations

import json
import zlib

from .machines import Adapter, Machine
from .pci import driver_of


def ip_address(machine: Machine) -> str:
    """`ip -json -s -s -d address show`."""
    rows = [_interface(1, "lo", "loopback", "00:00:00:00:00:00", 65536, "127.0.0.1", 8)]
    for index, each in enumerate((machine.management, *machine.adapters), start=2):
        kind = "infiniband" if each.kind == "infiniband" else "ether"
        mac = _ib_address(each) if kind == "infiniband" else each.mac
        mtu = 4092 if kind == "infiniband" else 9000 if each.device else 1500
        rows.append(_interface(index, each.netdev, kind, mac, mtu, each.address, 24))
    return json.dumps(rows, separators=(",", ":")) + "\n"


def _ib_address(adapter: Adapter) -> str:
    digits = "000010490000fe80000000000000"[:24] + adapter.guid
    return ":".join(digits[i : i + 2] for i in range(0, 40, 2))


def _interface(index: int, name: str, kind: str, mac: str, mtu: int, address: str, prefix: int) -> dict[str, object]:
    received = zlib.crc32(name.encode())
    none = dict.fromkeys(("errors", "dropped"), 0)
    rx = {"bytes": received * 997, "packets": received, **none, "over_errors": 0, "multicast": 0, "length_errors": 0}
    rx |= dict.fromkeys(("crc_errors", "frame_errors", "fifo_errors", "missed_errors"), 0)
    tx = {"bytes": received * 883, "packets": received - 100, **none, "carrier_errors": 0, "collisions": 0}
    tx |= {"aborted_errors": 0, "fifo_errors": 0, "window_errors": 0, "heartbeat_errors": 0}
    tx |= {"carrier_changes": 0 if name == "lo" else 2}
    flags = ["LOOPBACK", "UP", "LOWER_UP"] if name == "lo" else ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"]
    inet = {"family": "inet", "local": address, "prefixlen": prefix, "scope": "host" if name == "lo" else "global"}
    return {
        "ifindex": index,
        "ifname": name,
        "flags": flags,
        "mtu": mtu,
        "qdisc": "noqueue" if name == "lo" else "mq",
        "operstate": "UNKNOWN" if name == "lo" else "UP",
        "link_type": kind,
        "address": mac,
        "max_mtu": 0 if name == "lo" else 4092 if kind == "infiniband" else 9978,
        "addr_info": [inet] if address else [],
        "stats64": {"rx": rx, "tx": tx},
    }


def nics_sysfs(machine: Machine) -> str:
    """The collector's own form of /sys/class/net."""
    text = "lo\tindex=1\tmac=00:00:00:00:00:00\tspeed=\tduplex=\tdriver=\tpci=\tnuma="
    text += "\trx_queues=1\ttx_queues=1\tfirmware=\n"
    for index, each in enumerate((machine.management, *machine.adapters), start=2):
        fabric = each.kind == "infiniband"
        driver = driver_of(each.rate_gbit) if not each.device else "mlx5_core[ib_ipoib]" if fabric else "mlx5_core"
        model = machine.fabric
        firmware = f"{model.firmware} ({model.board_id})" if model and each.device else "9.50 0x8000f25e 1.3722.0"
        mac = _ib_address(each) if fabric else each.mac
        queues = 63 if each.device else 8
        cells = [f"index={index}", f"mac={mac}", f"speed={1000 * each.rate_gbit}", "duplex=full"]
        cells += [f"driver={driver.partition('[')[0]}", f"pci=0000:{each.pci}", f"numa={each.numa}"]
        cells += [f"rx_queues={queues}", f"tx_queues={queues}", f"firmware={firmware}"]
        text += "\t".join([each.netdev, *cells]) + "\n"
    return text
