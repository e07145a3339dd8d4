"""PCI Express: access control and trained links as root sees them, and the tree from sysfs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, output, output_of_root, parse, script
from nodectl.model.recording import Command, Recording
from nodectl.parsers.linux.lspci_acs import PciLink, parse_lspci_acs

_TREE = 'cd /sys/bus/pci/devices 2>/dev/null || exit 3; set -- *; [ -e "$1" ] || exit 3; exec readlink -- "$@"'
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_LSPCI = Command("lspci-acs", ("lspci", "-D", "-vvv"), deadline_s=20, hardware=True, root=True)
_COMMANDS = (
    _LSPCI,
    Command("cpuinfo-flags", ("grep", "-m1", "^flags", "/proc/cpuinfo"), hardware=True),
    script("pci-tree", _TREE, hardware=True),
)


@dataclass(frozen=True, slots=True)
class PcieBridge:
    """A bridge with access control; `redirects`: it sends traffic between devices through the root complex."""

    address: str
    name: str
    redirects: bool
    flags: str | None = None


@dataclass(frozen=True, slots=True)
class PcieLink:
    """How the link of one device or port was trained, and the best that it could; the longest read that it asks for."""

    address: str
    kind: str
    name: str
    speed_gt_s: float | None
    speed_max_gt_s: float | None
    width: int | None
    width_max: int | None
    max_read_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Pcie:
    """Addresses are `0000:0f:00.0`. `parents` names the bridge above each device; empty where it is not known.

    `virtual`: a virtual machine, whose host relies on access control. `gone` are devices that do not answer any more.
    """

    bridges: tuple[PcieBridge, ...]
    links: tuple[PcieLink, ...]
    parents: Mapping[str, str] = field(default_factory=dict)
    virtual: bool | None = None
    gone: tuple[PcieLink, ...] = ()

    def above(self, address: str) -> tuple[str, ...]:
        """The bridges between a device and the root, the nearest first."""
        bridges: list[str] = []
        at = self.parents.get(address.lower())
        while at and at not in bridges:
            bridges.append(at)
            at = self.parents.get(at)
        return tuple(bridges)


def _read(recording: Recording) -> Pcie:
    text = output_of_root(recording, _LSPCI)
    lspci, parents = parse(parse_lspci_acs, text), _parents(recording)
    if lspci.links is None:
        raise UnknownError("lspci shows no capabilities: only root sees them, see `nodectl sudoers`")
    if not text.endswith("\n\n"):  # as each of its devices does
        raise ParseError("lspci's output is cut: no blank line ends its last device")
    listed = {address.lower() for address in lspci.devices}
    for cut, other, untold in (
        ("lspci", "sysfs", parents.keys() - listed),
        ("sysfs", "lspci", listed - parents.keys()),
    ):
        if parents and untold:
            raise ParseError(
                f"the list of {cut} is cut: it lacks {counted(len(untold), 'device')} of {other}, {min(untold)} first"
            )
    bridges = [
        PcieBridge(bridge.bus_id.lower(), bridge.name, bridge.acs_enabled, bridge.flags)
        for bridge in lspci.bridges
        if bridge.acs_enabled is not None
    ]
    return Pcie(
        tuple(bridges),
        tuple(map(_link, lspci.links)),
        {address: bridge for address, bridge in parents.items() if bridge},
        _virtual(recording),
        gone=tuple(map(_link, lspci.gone)),
    )


def _link(link: PciLink) -> PcieLink:
    return PcieLink(
        link.bus_id.lower(),
        link.kind,
        link.name,
        link.speed_gt_s,
        link.speed_max_gt_s,
        link.width,
        link.width_max,
        link.max_read_bytes,
    )


def _parents(recording: Recording) -> Mapping[str, str]:
    """The bridge above each device, empty where none is; a recording without the tree still has the rest."""
    try:
        return parse(_read_tree, output(recording, "pci-tree"))
    except (AbsentError, UnknownError):
        return {}


def _read_tree(text: str) -> Mapping[str, str]:
    """`…/0000:00:01.0/0000:01:00.0` a line."""
    paths = [_ADDRESS.findall(line) for line in text.splitlines()]
    return {path[-1]: path[-2] if len(path) > 1 else "" for path in paths if path}


def _virtual(recording: Recording) -> bool | None:
    try:
        return _HYPERVISOR.search(output(recording, "cpuinfo-flags")) is not None
    except (AbsentError, UnknownError):
        return None


def _words(pcie: Pcie) -> str:
    on = sum(bridge.redirects for bridge in pcie.bridges)
    gone = f"; gone: {', '.join(link.address for link in pcie.gone)}" if pcie.gone else ""
    return f"{counted(len(pcie.links), 'link')}, access control on at {on} of {len(pcie.bridges)} bridges{gone}"


FACT = Fact("pcie", _COMMANDS, _read, _words, row=700)
