"""What /sys/class/infiniband tells of a host's RDMA devices, gathered by one grep."""

import re
from dataclasses import dataclass, field

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, whole
from nodectl.model.network import IbPort

NO_DEVICE = "the kernel has no RDMA device"
# PATH:VALUE as grep prints it, below /sys/class/infiniband; of 256 GIDs a port, only those that are set.
# Then where each device sits, and its interfaces: DEVICE/pci:ADDRESS, DEVICE/net/NAME:PORT
SCRIPT = """\
cd /sys/class/infiniband 2>/dev/null || exit 3
set -- *
[ -d "$1/ports" ] || exit 3
grep -sH '' */fw_ver */board_id */hca_type */node_guid */device/numa_node */ports/*/state */ports/*/phys_state \\
  */ports/*/rate */ports/*/link_layer */ports/*/lid */ports/*/sm_lid */ports/*/counters/* */ports/*/hw_counters/* \\
  */ports/*/gids/* */ports/*/gid_attrs/types/* */ports/*/gid_attrs/ndevs/* | grep -v ':0000:0000:0000:0000$'
for device; do
  printf '%s/pci:%s\\n' "$device" "$(readlink "$device/device")"
  for net in "$device"/device/net/*; do
    dev_port=
    [ ! -d "$net" ] || read -r dev_port <"$net/dev_port" || continue
    [ ! -d "$net" ] || printf '%s/net/%s:%s\\n' "$device" "${net##*/}" "$dev_port"
  done
done
exit 0
"""
_LINE = re.compile(r"([^/:]+)/(?:ports/(\d+)/)?([^:]+):(.*)")
_RATE = re.compile(r"([\d.]+)\s*Gb/sec(?:\s*\((\d+)X)?")


@dataclass(slots=True)
class Device:
    """A device's files by name, each port's by name, and the ports of its interfaces."""

    files: dict[str, str] = field(default_factory=dict)
    ports: dict[int, dict[str, str]] = field(default_factory=dict)
    netdevs: dict[str, str] = field(default_factory=dict)


def read_sysfs(text: str) -> dict[str, Device]:
    """Each device by its name; Absent where there is none with a port."""
    devices: dict[str, Device] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"ib-sysfs: line {number}: {line[:200]!r}")
        name, port, file, value = match.groups()
        device = devices.setdefault(name, Device())
        if port is not None:
            device.ports.setdefault(int(port), {})[file] = value.strip()
        elif file.startswith("net/"):
            # NIC ports count from 0, RDMA ports from 1
            device.netdevs[str(int(value) + 1) if value.isdigit() else ""] = file.removeprefix("net/")
        else:
            device.files[file] = value.strip()
    if not any(device.ports for device in devices.values()):
        raise AbsentError(NO_DEVICE)
    return devices


def port_of(name: str, port: int, device: Device) -> IbPort:
    """One port, with what its device says of all of them."""
    files = device.ports[port]
    rate = _RATE.search(files.get("rate", ""))
    numa = whole(device.files.get("device/numa_node"))
    counters = ((path.rpartition("/"), value) for path, value in files.items())
    return IbPort(
        device=name,
        port=port,
        state=word(files.get("state")),
        physical_state=word(files.get("phys_state")),
        rate_gbit_s=float(rate[1]) if rate else None,
        rate_text=files.get("rate"),
        width=int(rate[2]) if rate and rate[2] else None,
        link_layer=files.get("link_layer"),
        lid=_lid(files.get("lid")),
        sm_lid=_lid(files.get("sm_lid")),
        guid=device.files.get("node_guid"),
        firmware=device.files.get("fw_ver"),
        board_id=device.files.get("board_id"),
        type=device.files.get("hca_type"),
        netdev=device.netdevs.get(str(port)),
        pci_address=device.files.get("pci", "").rpartition("/")[2] or None,
        numa_node=numa if numa is not None and numa >= 0 else None,
        counters={
            path[2]: number
            for path, value in counters
            if path[0] in ("counters", "hw_counters") and (number := whole(value)) is not None
        },
    )


def word(text: str | None) -> str | None:
    """`4: ACTIVE` is ACTIVE."""
    return None if text is None else text.rpartition(":")[2].strip()


def _lid(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-fA-F]+", text) else whole(text)
