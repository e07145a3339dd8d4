"""PCI Express: access control and trained links as root sees them, and the tree from sysfs."""

import re

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, output, parse
from nodectl.facts.root import as_root, root_command
from nodectl.model.pcie import Pcie, PcieBridge, PcieLink
from nodectl.model.recording import Command, Recording
from nodectl.model.settings import Bridges
from nodectl.parsers.linux.lspci_acs import LspciAcs, parse_lspci_acs

_TREE = 'cd /sys/bus/pci/devices 2>/dev/null || exit 3; set -- *; [ -e "$1" ] || exit 3; exec readlink -- "$@"'
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
COMMANDS = (
    root_command("lspci-acs"),
    Command("cpuinfo-flags", ("grep", "-m1", "^flags", "/proc/cpuinfo"), hardware=True),
    Command("pci-tree", ("sh", "-c", _TREE), hardware=True),
)


def _lspci(recording: Recording) -> LspciAcs:
    found = parse(parse_lspci_acs, as_root(recording, "lspci-acs"))
    if found.links is None:
        raise UnknownError("lspci shows no capabilities: only root sees them, see `nodectl sudoers`")
    return found


def _pcie(recording: Recording) -> Pcie:
    found = _lspci(recording)
    bridges = [
        PcieBridge(each.bus_id.lower(), each.name, each.acs_enabled, each.flags)
        for each in found.bridges
        if each.acs_enabled is not None
    ]
    links = [
        PcieLink(
            each.bus_id.lower(),
            each.kind,
            each.name,
            each.speed_gt_s,
            each.speed_max_gt_s,
            each.width,
            each.width_max,
        )
        for each in found.links or ()
    ]
    return Pcie(tuple(bridges), tuple(links), _parents(recording), _virtual(recording))


def _parents(recording: Recording) -> dict[str, str]:
    """`…/0000:00:01.0/0000:01:00.0` a line; a recording without them still has the rest."""
    try:
        lines = output(recording, "pci-tree").splitlines()
    except (AbsentError, UnknownError, ParseError):
        return {}
    paths = [_ADDRESS.findall(line) for line in lines]
    return {path[-1]: path[-2] for path in paths if len(path) > 1}


def _virtual(recording: Recording) -> bool | None:
    try:
        return _HYPERVISOR.search(output(recording, "cpuinfo-flags")) is not None
    except (AbsentError, UnknownError):
        return None


def _bridges(recording: Recording) -> Bridges:
    known = _pcie(recording)
    redirecting = sorted(bridge.address for bridge in known.bridges if bridge.redirects)
    return Bridges(len(known.bridges), tuple(redirecting), bool(known.virtual))


FACT = Fact("pcie", lambda venv: COMMANDS, _pcie)
BRIDGES = Fact("bridges", lambda venv: COMMANDS, _bridges)
