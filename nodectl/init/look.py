"""What a host is, as far as its profiles depend on it: from facts, and from the PCI bus where no driver tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.errors import UnreachableError
from nodectl.facts.base import Fact, script
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.facts.kernel import Kernel
from nodectl.facts.look import Lab
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.profiles.families import family_of
from nodectl.profiles.fit import Seen
from nodectl.profiles.host_compat import SWITCH_OFF_BUS, HostLook
from nodectl.profiles.learn import has_switches, ports_of
from nodectl.profiles.matrix import matrix
from nodectl.profiles.nccl import version_key

# address, vendor, class and device of each: a GPU without a driver is there, too
_PCI = script(
    "pci-nvidia",
    """\
cd /sys/bus/pci/devices 2>/dev/null || exit 3
for device in *; do
  read -r vendor <"$device/vendor" && [ "$vendor" = 0x10de ] || continue
  read -r class <"$device/class" && read -r identity <"$device/device" || continue
  printf '%s %s %s\\n' "$device" "$class" "$identity"
done 2>/dev/null
exit 0
""",
)
_SUBJECTS = ("gpus", "kernel", "versions", "lab", "ib_ports", "nics", "fabric_manager", "pcie")
# display controllers, and the bridge that an NVSwitch is
_GPU_CLASSES, _SWITCH_CLASS = ("0x0300", "0x0302"), "0x0680"
# as lspci shows them, where a recording answers for the bus
_SHOWN = re.compile(
    r"^\S+ (?:VGA compatible|3D) controller: NVIDIA Corporation (?:Device ([0-9a-f]{4}))?", re.MULTILINE
)
_FABRICS = {"infiniband": "InfiniBand", "roce": "RoCE", "ethernet": "Ethernet"}


@dataclass(frozen=True, slots=True)
class Found:
    """A host as it was found: what it is made of, its system and driver; `torch` is that of nodectl's environment.

    `recorded` is the name of the recording that answers for a lab host's hardware.
    """

    host: Host
    seen: Seen
    look: HostLook
    system: str
    torch: str | None = None
    cuda: str | None = None
    lab: bool = False
    recorded: str = ""

    @property
    def driver(self) -> str | None:
        """The loaded driver's version."""
        return self.look.node.driver.version

    @property
    def fabric(self) -> str:
        """The network in words: `8 x 400 Gbit/s InfiniBand`."""
        ports = (f"{count} x {rate:g} Gbit/s {_FABRICS[kind]}" for count, rate, kind in self.seen.ports or ())
        return ", ".join(ports) or "no InfiniBand or RoCE"


def commands(host: Host) -> tuple[Command, ...]:
    """Return what is asked of a host."""
    return (*commands_for(host, _facts()), _PCI)


def _facts() -> tuple[Fact[Any], ...]:
    return facts_named(*_SUBJECTS)


def found(host: Host, recording: Recording) -> Found:
    """The host by its answers; UnreachableError where nobody could tell which GPUs it has."""
    facts = read_facts(recording, _facts())
    lab, versions, gpus = (facts[subject] for subject in ("lab", "versions", "gpus"))
    recorded = lab.recorded if isinstance(lab, Lab) else ""
    devices, bus_switch = _on_bus(recording, lab=isinstance(lab, Lab), recorded=bool(recorded))
    if isinstance(gpus, Unread) and gpus.kind == "unknown" and not devices and (recorded or not isinstance(lab, Lab)):
        raise UnreachableError(f"{host.name}: its GPUs: {gpus.reason}", f"nodectl exec -l {host.name} -- nvidia-smi")
    shown = gpus.devices if isinstance(gpus, Gpus) else ()
    lost = len(gpus.lost) if isinstance(gpus, Gpus) else 0
    seen = Seen(
        max(len(shown) + lost, len(devices)),
        tuple(dict.fromkeys(gpu.name for gpu in shown if gpu.name)),
        tuple(dict.fromkeys(devices)),
        bus_switch or has_switches(facts) or (False if _switches_show(devices) else None),
        ports_of(facts),
    )
    told = versions if isinstance(versions, Versions) else Versions("")
    kernel = facts["kernel"] if isinstance(facts["kernel"], Kernel) else None
    return Found(
        host,
        seen,
        _look(kernel, seen, devices, told.driver),
        (kernel and kernel.os_name) or "an unknown system",
        told.torch,
        told.cuda,
        isinstance(lab, Lab),
        recorded,
    )


def _switches_show(devices: Sequence[str]) -> bool:
    """Return whether NVSwitches that join these GPUs would be seen on the bus: from Blackwell on they are elsewhere."""
    rows = [matrix().device(device) for device in devices]
    return bool(rows) and all(row and version_key(row.compute_capability) < SWITCH_OFF_BUS for row in rows)


def _on_bus(recording: Recording, *, lab: bool, recorded: bool) -> tuple[list[str], bool]:
    """PCI ids of the NVIDIA GPUs on the bus (empty where lspci does not show one), and whether there is an NVSwitch."""
    if recorded:
        entry = recording.entries.get("lspci-acs")
        return [
            f"0x{identity}" if identity else "" for identity in _SHOWN.findall(entry.stdout if entry else "")
        ], False
    # a lab host sees the machine's devices, and may use none
    entry = None if lab else recording.entries.get(_PCI.key)
    rows = [line.split() for line in (entry.stdout if entry else "").splitlines()]
    classes = [(row[1][:6], row[2]) for row in rows if len(row) == 3]
    devices = [identity for kind, identity in classes if kind in _GPU_CLASSES]
    return devices, any(kind == _SWITCH_CLASS for kind, _ in classes)


def _look(kernel: Kernel | None, seen: Seen, devices: Sequence[str], driver: str | None) -> HostLook:
    """Return it as node_look would see it; whose packages the driver is, only that can tell."""
    os_id, version = (kernel.os_id or "", kernel.os_version or "") if kernel else ("", "")
    major = version.partition(".")[0] if family_of(os_id).family == "rhel" else version
    return HostLook.create(
        {
            "os": {"id": os_id, "version": version, "key": "-".join(filter(None, (os_id, major)))},
            "architecture": kernel.architecture if kernel else "",
            "gpus": [{"device": device} for device in devices] or [{}] * seen.gpus,
            "nvswitch": bool(seen.nvswitch),
            "driver": {"version": driver},
        }
    )
