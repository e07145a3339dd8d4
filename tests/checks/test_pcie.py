"""Access control between GPUs and NICs, how NICs were trained, and the kernel's word on slow slots."""

from nodectl.checks.kernel import pcie
from nodectl.facts.board import Pcie
from nodectl.facts.look import Lab
from nodectl.facts.parsers.linux.lspci_acs import PcieBridge, PcieLink
from nodectl.facts.rdma import IbPort
from nodectl.profiles.resolve import resolve
from tests.checks.gpus import count
from tests.checks.table import ABSENT, UNREAD, Case, dgx, found, plain, quiet

OFF = resolve("dgx-a100", "cu128", "stock", overrides={"gpu": {"acs": "off"}})
ROOT, SWITCH, GPU0, GPU1, CARD, ONBOARD = (
    "0000:00:01.1",
    "0000:02:00.0",
    "0000:07:00.0",
    "0000:17:00.0",
    "0000:0c:00.0",
    "0000:e2:00.0",
)
TREE = {SWITCH: ROOT, GPU0: SWITCH, GPU1: SWITCH, CARD: SWITCH, ONBOARD: "0000:e0:01.1"}
FALLEN = PcieLink(GPU0, "3D controller", "NVIDIA Corporation GA100 (rev ff)", None, None, None, None)
PORTS = {"ib_ports": (IbPort("mlx5_0", 1, pci_address=CARD),)}


def bridges(*redirecting: str, virtual: bool | None = False, tree: bool = True) -> dict[str, object]:
    """A switch below a root port with two GPUs and a NIC below it."""
    made = tuple(PcieBridge(address, "PLX", address in redirecting) for address in (ROOT, SWITCH, "0000:e0:01.1"))
    return {"pcie": Pcie(made, (), TREE if tree else {}, virtual), **count(2), **PORTS}


def card(
    address: str = CARD,
    kind: str = "Infiniband controller",
    speed: float | None = 16.0,
    width: int | None = 16,
    slot: int = 16,
    slot_speed: float = 16.0,
) -> dict[str, object]:
    link = PcieLink(address, kind, "ConnectX-6", speed, 16.0, width, 16)
    port = PcieLink(SWITCH, "PCI bridge", "PLX", 16.0, slot_speed, 8, slot)
    return {"pcie": Pcie((), (port, link), TREE, False), **PORTS}


CASES = [
    Case("access_control", "ok", bridges(), OFF),
    Case("access_control", "failed", bridges(ROOT), OFF),
    Case("access_control", "skipped", bridges(ROOT, virtual=True), OFF),
    Case("access_control", "ok", bridges(), dgx()),
    Case("access_control", "warning", bridges(SWITCH), dgx()),
    Case("access_control", "ok", bridges(ROOT, "0000:e0:01.1"), dgx()),
    Case("access_control", "warning", bridges(ROOT, tree=False), dgx()),
    Case("access_control", "unknown", {**bridges(), "pcie": UNREAD}, dgx()),
    Case("access_control", "unknown", {**bridges(), "pcie": ABSENT}, OFF),
    Case("access_control", "nothing", {**bridges(), "pcie": ABSENT}, dgx()),
    Case("access_control", "nothing", {"pcie": bridges(SWITCH)["pcie"]}, plain()),
    Case("access_control", "nothing", {**bridges(SWITCH), "lab": Lab("lab", ("sys",))}, dgx()),
    Case("pcie_gone", "failed", {"pcie": Pcie((), (), gone=(FALLEN,))}, subject=GPU0, action="reboot"),
    Case("pcie_gone", "unknown", {**bridges(), "pcie": UNREAD}),
    Case("pcie_gone", "nothing", {"pcie": UNREAD}),
    Case("nic_pcie_width", "failed", card(width=8), subject=CARD, action="drain"),
    Case("nic_pcie_width", "ok", card(width=8, slot=8)),
    Case("nic_pcie_speed", "ok", card(speed=8.0, slot_speed=8.0)),
    Case("nic_pcie_width", "warning", card(ONBOARD, "Ethernet controller", width=1), subject=ONBOARD),
    Case("nic_pcie_width", "unknown", card(width=None), subject=CARD),
    Case("nic_pcie_width", "unknown", {"pcie": UNREAD, **PORTS}),
    Case("nic_pcie_width", "nothing", {"pcie": UNREAD}),
    Case("nic_pcie_speed", "failed", card(speed=8.0), subject=CARD),
    Case("nic_pcie_speed", "warning", card(ONBOARD, "Ethernet controller", speed=2.5)),
    Case("nic_pcie_speed", "unknown", card(speed=None), subject=CARD),
]


QUIET = quiet(card(), checks="pcie_gone nic_pcie_width nic_pcie_speed")


def test_each_bridge_that_redirects_is_named() -> None:
    (said,) = [each.actual for each in found(pcie, Case("", "", bridges(SWITCH, ROOT), OFF)) if each.status == "failed"]
    assert said == f"on at {ROOT}, {SWITCH}"
