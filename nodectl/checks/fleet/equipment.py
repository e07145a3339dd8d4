"""What else hosts of one kind have alike: firmware, microcode, partitions, flow control, read requests, containers."""

from __future__ import annotations

from nodectl.checks.check import Subject, compares
from nodectl.checks.fleet.alike import Values, field_of
from nodectl.checks.network.infiniband import ports_of
from nodectl.facts.containers import ContainerToolkit
from nodectl.facts.firmware import Firmware
from nodectl.facts.flow_control import FlowControl
from nodectl.facts.pcie import Pcie
from nodectl.facts.pkeys import Pkeys
from nodectl.model.status import Status

_REBOOT = "bring it to the others' version (the vendor's update, or the package of microcode), then reboot"
BOARD_FIRMWARE = field_of("board_firmware", "the board's firmware, by product", _REBOOT)
MICROCODE = field_of("microcode", "the processors' microcode", _REBOOT)
DISK_FIRMWARE = field_of("disk_firmware", "firmware of NVMe disks, by model", "update it (`nvme fw-download`), reboot")


@compares(BOARD_FIRMWARE, MICROCODE, DISK_FIRMWARE, reads=("firmware",))
def firmware(host: Subject, firmware: Firmware) -> Values:
    board = firmware.board
    yield BOARD_FIRMWARE.of(board.get("bios_version"), board.get("product_name", ""))
    yield MICROCODE.of(", ".join(firmware.microcode))
    for model, revisions in firmware.disks.items():
        yield DISK_FIRMWARE.of(", ".join(revisions), model)


PKEYS = field_of("pkeys", "the partitions of InfiniBand ports", "correct the manager's partitions", Status.FAILED)


@compares(PKEYS, reads=("pkeys",))
def pkeys(host: Subject, pkeys: Pkeys) -> Values:
    # which keys there are, not on which of its ports: a port of storage may have one of its own on every host
    yield PKEYS.of("; ".join(sorted({", ".join(keys) for keys in pkeys.ports.values()})))


FLOW_CONTROL = field_of(
    "flow_control", "PFC and ECN of RoCE interfaces", "set it there as on the others, and on the switch's port"
)


@compares(FLOW_CONTROL, reads=("flow_control",))
def flow_control(host: Subject, flow: FlowControl) -> Values:
    for name, each in flow.interfaces.items():
        yield FLOW_CONTROL.of(str(each), name)


READ_REQUEST = field_of(
    "read_request", "PCIe MaxReadReq of RDMA adapters", "set it there as on the others (`setpci`, mlxconfig, firmware)"
)


@compares(READ_REQUEST, reads=("pcie", "ib_ports"))
def read_requests(host: Subject, pcie: Pcie) -> Values:
    addresses = {port.pci_address.lower() for port in ports_of(host) if port.pci_address}
    sizes = {link.max_read_bytes for link in pcie.links if link.address in addresses and link.max_read_bytes}
    yield READ_REQUEST.of(", ".join(f"{size} bytes" for size in sorted(sizes)))


CONTAINER_TOOLKIT = field_of(
    "container_toolkit", "NVIDIA's container toolkit", "install the others' version of nvidia-container-toolkit"
)


@compares(CONTAINER_TOOLKIT, reads=("containers",))
def container_toolkit(host: Subject, toolkit: ContainerToolkit) -> Values:
    yield CONTAINER_TOOLKIT.of(toolkit.version)
