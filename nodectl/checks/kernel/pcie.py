"""Checks PCI Express beyond the GPUs' report: access control between devices, and the links of network cards."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, failed_unless, judges, warning_unless
from nodectl.checks.gpu.rules import gpus_of
from nodectl.checks.network.infiniband import ports_of
from nodectl.facts.board import Pcie
from nodectl.facts.parsers.linux.lspci_acs import PcieLink
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 120

_NIC_KINDS = ("Infiniband controller", "InfiniBand controller", "Ethernet controller", "Network controller")
_SLOT = "drain, reseat the card or its riser; if it stays so, have the card looked at (`lspci -vvv -s ADDRESS`: LnkSta)"


ACCESS_CONTROL = Check(
    "access_control",
    fires="a bridge redirects on bare metal, where the tuning wants it off; else a warning",
    remedy="set gpu.acs: off in the tuning, then `nodectl provision --tags gpu_settings`: "
    "peer traffic is slow or hangs",
    roles=("gpu_settings",),
)


@judges(ACCESS_CONTROL, reads=("pcie", "lab", "gpus", "ib_ports"))
def access_control(host: Subject) -> Iterator[Finding]:
    """Fail on bare metal for a bridge between GPUs and NICs that redirects their traffic through the root complex."""
    wanted = host.wanted.tuning.gpu.acs if host.wanted else None
    pcie = host.facts.get("pcie")
    if wanted is None and not _has_peers(host):
        return
    expected = "off on every PCIe bridge" if wanted else "off above GPUs and NICs"
    # if the tuning asks for it, it must be readable; else a machine without lspci is no fault
    yield from host.unread(ACCESS_CONTROL, pcie, expected) if wanted else host.unknown(pcie, expected, ACCESS_CONTROL)
    if not isinstance(pcie, Pcie) or host.borrows("sys"):
        return
    if pcie.virtual:
        actual = f"{NOT_SETTABLE}: a virtual machine's host relies on it"
        yield host.finding(ACCESS_CONTROL, Status.SKIPPED, expected=expected, actual=actual)
        return
    on = _redirecting(host, pcie, everywhere=wanted is not None)
    status = failed_unless(not on) if wanted else warning_unless(not on)
    actual = f"on at {', '.join(on)}" if on else f"off; {len(pcie.bridges)} bridges have it"
    yield host.finding(ACCESS_CONTROL, status, expected=expected, actual=actual)


def _has_peers(host: Subject) -> bool:
    """Tell whether devices can bypass the processor: several GPUs, or a GPU and an RDMA NIC."""
    count = len(gpus_of(host))
    return count > 1 or (count == 1 and bool(_rdma_addresses(host)))


def _redirecting(host: Subject, pcie: Pcie, *, everywhere: bool) -> list[str]:
    """Return the redirecting bridges: all, or, if the tree is known and suffices, those between GPUs and NICs."""
    on = sorted(bridge.address for bridge in pcie.bridges if bridge.redirects)
    ends = [gpu.bus_id.lower() for gpu in gpus_of(host) if gpu.bus_id] + sorted(_rdma_addresses(host))
    ways = [pcie.above(end) for end in ends]
    if everywhere or not pcie.parents or not ends:
        return on
    # a root port is only between devices that lie below several ports of one switch
    shared = {bridge for way in ways for bridge in way[:-1]}
    return [address for address in on if address in shared]


def _rdma_addresses(host: Subject) -> set[str]:
    return {port.pci_address.lower() for port in ports_of(host) if port.pci_address}


PCIE_GONE = Check(
    "pcie_gone",
    fires="a device that is still listed does not answer: all of its registers read as ones",
    expected="every device answers on the bus",
    remedy="drain and reboot the node; if it comes back, check the device's power and seat, then have it replaced",
    action="reboot",
)


@judges(PCIE_GONE, reads=("pcie", "lab", "gpus", "ib_ports"))
def gone(host: Subject) -> Iterator[Finding]:
    """Fail for each device that has fallen off the bus, which is in no other list of lspci's."""
    pcie = host.facts.get("pcie")
    if host.borrows("sys"):
        return
    if _has_peers(host):
        yield from host.unknown(pcie, PCIE_GONE.expected, PCIE_GONE)
    if isinstance(pcie, Pcie):
        actual = "lspci reads ones from all of its registers (rev ff): it has fallen off the bus"
        faults = (
            host.finding(PCIE_GONE, Status.FAILED, link.address, actual=actual, evidence=f"{link.kind}: {link.name}")
            for link in pcie.gone
        )
        yield from host.all_of(PCIE_GONE, faults, actual=f"{len(pcie.links)} links")


NIC_PCIE_WIDTH = Check(
    "nic_pcie_width",
    fires="an RDMA card with fewer lanes than it and its slot have; warning: another card",
    expected="all lanes that card and slot have",
    remedy=_SLOT,
    action="drain",
)
NIC_PCIE_SPEED = Check(
    "nic_pcie_speed",
    fires="an RDMA card slower than it and its slot can; warning: another card",
    expected="the speed that card and slot have",
    remedy=_SLOT,
    action="drain",
)


@judges(NIC_PCIE_WIDTH, NIC_PCIE_SPEED, reads=("pcie", "lab", "ib_ports"))
def nic_links(host: Subject) -> Iterator[Finding]:
    """Require full width and speed of each network card's link, which a NIC does not lower when idle."""
    pcie = host.facts.get("pcie")
    if host.borrows("sys"):
        return
    if _rdma_addresses(host):
        yield from host.unread(NIC_PCIE_WIDTH, pcie)
    links = [link for link in pcie.links if link.kind in _NIC_KINDS] if isinstance(pcie, Pcie) else []
    if not links or not isinstance(pcie, Pcie):
        return
    rows = (
        (NIC_PCIE_WIDTH, "width", "width_max", "x{:g} of x{:g}"),
        (NIC_PCIE_SPEED, "speed_gt_s", "speed_max_gt_s", "{:g} of {:g} GT/s"),
    )
    for check, live, best, text in rows:
        faults = (
            fault
            for link in links
            for fault in _short(host, check, link, getattr(link, live), _able(pcie, link, best), text)
        )
        yield from host.all_of(check, faults, actual=f"{len(links)} cards")


def _able(pcie: Pcie, link: PcieLink, best: str) -> float | None:
    above = pcie.above(link.address)[:1]
    slot = next((getattr(port, best) for port in pcie.links if port.address in above), None)
    able: float | None = getattr(link, best)
    return able if able is None or slot is None else min(able, slot)


def _short(
    host: Subject, check: Check, link: PcieLink, live: float | None, best: float | None, text: str
) -> Iterator[Finding]:
    if live is None or best is None:
        yield host.finding(check, Status.UNKNOWN, link.address, actual="lspci does not tell", evidence=link.name)
    elif live < best:
        trains = link.address in _rdma_addresses(host) or "nfini" in link.kind
        status, actual = Status.FAILED if trains else Status.WARNING, text.format(live, best)
        yield host.finding(check, status, link.address, actual=actual, evidence=link.name)
