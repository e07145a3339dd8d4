"""The board: firmware, serial number, the management controller's log, PCI Express."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import (
    AbsentError,
    Fact,
    UnknownError,
    listed,
    matches,
    output,
    output_of_root,
    parse,
    script,
    text_fact,
)
from nodectl.facts.parsers.linux.lspci_acs import PcieBridge, PcieLink, parse_lspci_acs
from nodectl.model.recording import Command, Recording

_LINE = re.compile(r"(\w+)\s+(.*)")


@dataclass(frozen=True, slots=True)
class Firmware:
    """Firmware that a host brings: the board's, the processors' microcode, and the disks'.

    `board` are the files of /sys/class/dmi/id; `microcode` each revision once; `disks` the revisions by model. `drives`
    is the model of each NVMe disk.
    """

    board: Mapping[str, str]
    microcode: tuple[str, ...]
    disks: Mapping[str, tuple[str, ...]]
    drives: tuple[str, ...] = ()


def _parse_firmware(text: str) -> Firmware:
    board: dict[str, str] = {}
    microcode: list[str] = []
    disks: dict[str, set[str]] = {}
    drives: list[str] = []
    for match in matches(_LINE, text, "firmware"):
        name, value = match[1], match[2].strip()
        if name == "microcode":
            microcode.append(value)
        elif name == "nvme":
            model, _, revision = value.partition("\t")
            drives.append(model.strip())
            disks.setdefault(model.strip(), set()).add(revision.strip())
        else:
            board[name] = value
    revisions = {model: tuple(sorted(versions)) for model, versions in disks.items()}
    return Firmware(board, tuple(sorted(microcode)), revisions, tuple(sorted(drives)))


FIRMWARE_FACT = text_fact(
    "firmware",
    script("firmware", hardware=True),
    _parse_firmware,
    lambda firmware: f"board {firmware.board.get('bios_version', '?')}, microcode {listed(firmware.microcode, '?')}",
    row=132,
)


_HOST_SERIAL_COMMAND: Command = script("host-serial", hardware=True)
# makers who set none leave words there (`System Serial Number`, `Default string`, `None`), or a row of digits
_NUMBER = re.compile(r"(?!(.)\1*$)(?!0?123456789)(?=\D*\d)\S{4,64}")


def _read_host_serial(recording: Recording) -> str:
    shown = output(recording, _HOST_SERIAL_COMMAND.key, "not shown to this login, or there is none")
    text = shown.partition(":")[2].strip()
    if not _NUMBER.fullmatch(text):
        raise AbsentError(f"its maker left {text!r} there")
    return text


HOST_SERIAL_FACT = Fact(
    "host_serial",
    (_HOST_SERIAL_COMMAND,),
    _read_host_serial,
    str,
    row=131,
    quiet=True,
    about="The serial number that a host's maker gave it; the kernel shows it to root alone.",
)


# not `elist`: to name each sensor it reads the whole SDR, which takes seconds
_BMC_LOG_COMMAND = Command(
    "bmc-log", ("ipmitool", "sel", "list", "last", "100"), deadline_s=20, hardware=True, root=True
)
_NO_BMC = ("Could not open device", "No such file or directory", "Unable to open")


@dataclass(frozen=True, slots=True)
class BmcEvent:
    """One event, as ipmitool words it; `date` is empty for what came before the controller had a clock."""

    date: str
    time: str
    sensor: str
    event: str
    asserted: bool


@dataclass(frozen=True, slots=True)
class BmcLog:
    """The events of the board's management controller (BMC): power, fans, temperatures, memory, processors."""

    events: tuple[BmcEvent, ...]


def _read_bmc_log(recording: Recording) -> BmcLog:
    try:
        text = output_of_root(recording, _BMC_LOG_COMMAND)
    except UnknownError as error:
        if any(word in str(error) for word in _NO_BMC):
            raise AbsentError("this machine has no management controller that the kernel knows") from error
        raise
    return BmcLog(tuple(_event(line) for line in text.splitlines() if "|" in line))


def _event(line: str) -> BmcEvent:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) < 5:
        raise ParseError(f"bmc-log: {line[:160]!r} is no event")
    date = cells[1] if re.fullmatch(r"\d\d/\d\d/\d{2,4}", cells[1]) else ""
    directions = [cell for cell in cells[5:] if cell in ("Asserted", "Deasserted")]
    return BmcEvent(date, cells[2], cells[3], cells[4], directions != ["Deasserted"])


BMC_LOG_FACT = Fact(
    "bmc_log", (_BMC_LOG_COMMAND,), _read_bmc_log, lambda log: f"{len(log.events)} events", row=135, quiet=True
)


_TREE = 'cd /sys/bus/pci/devices 2>/dev/null || exit 3; set -- *; [ -e "$1" ] || exit 3; exec readlink -- "$@"'
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_LSPCI = Command("lspci-acs", ("lspci", "-D", "-vvv"), deadline_s=20, hardware=True, root=True)
_PCIE_COMMANDS = (
    _LSPCI,
    Command("cpuinfo-flags", ("grep", "-m1", "^flags", "/proc/cpuinfo"), hardware=True),
    script("pci-tree", _TREE, hardware=True),
)


# as lspci calls GPUs with and without an output
_DISPLAYS = ("3D controller", "VGA compatible controller", "Display controller", "Processing accelerators")


@dataclass(frozen=True, slots=True)
class Pcie:
    """PCI Express: access control and trained links as root sees them, and the tree from sysfs.

    Addresses are `0000:0f:00.0`. `parents` names the bridge above each device; empty if it is not known. `virtual`:
    a virtual machine, whose host relies on access control. `gone` are devices that do not answer any more.
    """

    bridges: tuple[PcieBridge, ...]
    links: tuple[PcieLink, ...]
    parents: Mapping[str, str] = field(default_factory=dict)
    virtual: bool | None = None
    gone: tuple[PcieLink, ...] = ()

    def above(self, address: str) -> tuple[str, ...]:
        """Return the bridges between a device and the root, the nearest first."""
        bridges: list[str] = []
        at = self.parents.get(address.lower())
        while at and at not in bridges:
            bridges.append(at)
            at = self.parents.get(at)
        return tuple(bridges)

    def gpus_of(self, maker: str) -> list[PcieLink]:
        """Return the GPUs of a maker, as lspci spells it, with those that do not answer any more."""
        return [link for link in (*self.links, *self.gone) if maker in link.name and link.kind in _DISPLAYS]

    @property
    def other_gpus(self) -> str:
        """Return the GPUs of other makers than NVIDIA, as `2 x AMD GPU on PCI`; empty without any."""
        counts = {name: len(self.gpus_of(maker)) for name, maker in (("AMD", "[AMD/ATI]"), ("Intel", "Intel"))}
        return " + ".join(f"{count} x {name} GPU on PCI" for name, count in counts.items() if count)


def _read_pcie(recording: Recording) -> Pcie:
    text = output_of_root(recording, _LSPCI)
    lspci, parents = parse(parse_lspci_acs, text), dict[str, str]()
    virtual: bool | None = None
    with suppress(AbsentError, UnknownError):
        parents = parse(_read_tree, output(recording, "pci-tree"))
    with suppress(AbsentError, UnknownError):
        virtual = _HYPERVISOR.search(output(recording, "cpuinfo-flags")) is not None
    if lspci.links is None:
        raise UnknownError("lspci shows no capabilities: only root sees them, see `nodectl sudoers`")
    if not text.endswith("\n\n"):  # as each of its devices does
        raise ParseError("lspci's output is cut: no blank line ends its last device")
    listed = set(lspci.devices)
    for cut, other, untold in (
        ("lspci", "sysfs", parents.keys() - listed),
        ("sysfs", "lspci", listed - parents.keys()),
    ):
        if parents and untold:
            raise ParseError(
                f"the list of {cut} is cut: it lacks {counted(len(untold), 'device')} of {other}, {min(untold)} first"
            )
    return Pcie(
        lspci.bridges,
        lspci.links,
        {address: bridge for address, bridge in parents.items() if bridge},
        virtual,
        gone=lspci.gone,
    )


def _read_tree(text: str) -> dict[str, str]:
    """`…/0000:00:01.0/0000:01:00.0` a line."""
    paths = [_ADDRESS.findall(line) for line in text.splitlines()]
    return {path[-1]: path[-2] if len(path) > 1 else "" for path in paths if path}


def _pcie_words(pcie: Pcie) -> str:
    on = sum(bridge.redirects for bridge in pcie.bridges)
    gone = f"; gone: {', '.join(link.address for link in pcie.gone)}" if pcie.gone else ""
    return f"{counted(len(pcie.links), 'link')}, access control on at {on} of {len(pcie.bridges)} bridges{gone}"


PCIE_FACT = Fact("pcie", _PCIE_COMMANDS, _read_pcie, _pcie_words, row=700)
