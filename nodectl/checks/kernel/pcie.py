"""PCI Express beside the GPUs' own report: access control on the ways between devices, and how NICs were trained."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, failed_unless, judges
from nodectl.checks.gpu.rules import gpus_of
from nodectl.facts.ib_ports import IbPort
from nodectl.facts.nics import Nic
from nodectl.facts.pcie import Pcie, PcieLink
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg

ORDER = 120

_NIC_KINDS = ("Infiniband controller", "InfiniBand controller", "Ethernet controller", "Network controller")
_SLOT = "reseat the card or its riser; `lspci -vvv -s ADDRESS` shows LnkCap and LnkSta"


ACCESS_CONTROL = Check(
    "access_control",
    looks_at="lspci",
    fires="a bridge redirects on bare metal, where the tuning wants it off; else a warning",
    remedy="set gpu.acs: off in the tuning, then `nodectl provision --tags gpu_settings`: "
    "peer traffic is slow or hangs",
    roles=("gpu_settings",),
)


@judges(ACCESS_CONTROL, reads=("pcie", "lab", "gpus", "ib_ports"))
def access_control(host: Subject) -> Iterator[Finding]:
    """On bare metal no bridge between GPUs and NICs sends their traffic through the root complex."""
    wanted = host.wanted.tuning.gpu.acs if host.wanted else None
    found = host.facts.get("pcie")
    if wanted is None and not _has_peers(host):
        return
    expected = "off on every PCIe bridge" if wanted else "off above GPUs and NICs"
    if isinstance(found, Unread):
        # asked for by the tuning, it must be known; by nobody, a machine without lspci is not at fault
        yield from (
            host.unread(ACCESS_CONTROL, found, expected) if wanted else host.unknown(found, expected, ACCESS_CONTROL)
        )
    if not isinstance(found, Pcie) or host.borrows("sys"):
        return
    if found.virtual:
        actual = f"{NOT_SETTABLE}: a virtual machine's host relies on it"
        yield host.finding(ACCESS_CONTROL, Status.SKIPPED, expected=expected, actual=actual)
        return
    on = _redirecting(host, found, everywhere=wanted is not None)
    status = failed_unless(not on) if wanted else Status.WARNING if on else Status.OK
    actual = f"on at {', '.join(on)}" if on else f"off; {len(found.bridges)} bridges have it"
    yield host.finding(ACCESS_CONTROL, status, expected=expected, actual=actual)


def _has_peers(host: Subject) -> bool:
    """Two devices that talk past the processor: several GPUs, or one and an RDMA NIC."""
    count = len(gpus_of(host))
    return count > 1 or (count == 1 and bool(_rdma_addresses(host)))


def _redirecting(host: Subject, found: Pcie, *, everywhere: bool) -> list[str]:
    """All that redirect; where the tree is known and nobody asked for more, those on the ways of GPUs and NICs."""
    on = sorted(bridge.address for bridge in found.bridges if bridge.redirects)
    ends = [gpu.bus_id.lower() for gpu in gpus_of(host) if gpu.bus_id] + sorted(_rdma_addresses(host))
    ways = [found.above(end) for end in ends]
    if everywhere or not found.parents or not ends:
        return on
    # a root port is only on the way of what lies below one switch's several ports
    shared = {bridge for way in ways for bridge in way[:-1]}
    return [address for address in on if address in shared]


def _rdma_addresses(host: Subject) -> set[str]:
    ports = host.facts.get("ib_ports")
    found = ports if isinstance(ports, tuple) else ()
    return {port.pci_address.lower() for port in found if isinstance(port, IbPort) and port.pci_address}


NIC_PCIE_WIDTH = Check(
    "nic_pcie_width", looks_at="lspci", fires="an RDMA card with fewer lanes than it has; warning: another card"
)
NIC_PCIE_SPEED = Check(
    "nic_pcie_speed", looks_at="lspci", fires="an RDMA card slower than it can; warning: another card"
)


@judges(NIC_PCIE_WIDTH, NIC_PCIE_SPEED, reads=("pcie", "lab", "ib_ports"))
def nic_links(host: Subject) -> Iterator[Finding]:
    """Each network card has all its lanes and its speed: a NIC does not lower them when idle."""
    found = host.facts.get("pcie")
    if host.borrows("sys"):
        return
    if isinstance(found, Unread):
        if _rdma_addresses(host):
            yield from host.unread(NIC_PCIE_WIDTH, found, "all lanes")
        return
    if not isinstance(found, Pcie):
        return
    links = [link for link in found.links if link.kind in _NIC_KINDS]
    if links:
        actual = f"{len(links)} cards"
        yield from host.all_of(NIC_PCIE_WIDTH, _narrow(host, links), expected="all lanes", actual=actual)
        yield from host.all_of(NIC_PCIE_SPEED, _slow(host, links), expected="full speed", actual=actual)


def _narrow(host: Subject, links: list[PcieLink]) -> Iterator[Finding]:
    for link in links:
        if link.width is None or link.width_max is None:
            yield _nic(host, NIC_PCIE_WIDTH, link, Status.UNKNOWN, "lspci does not tell")
        elif link.width < link.width_max:
            status = Status.FAILED if _trains(host, link) else Status.WARNING
            yield _nic(host, NIC_PCIE_WIDTH, link, status, f"x{link.width} of x{link.width_max}")


def _slow(host: Subject, links: list[PcieLink]) -> Iterator[Finding]:
    for link in links:
        if link.speed_gt_s is None or link.speed_max_gt_s is None:
            yield _nic(host, NIC_PCIE_SPEED, link, Status.UNKNOWN, "lspci does not tell")
        elif link.speed_gt_s < link.speed_max_gt_s:
            status = Status.FAILED if _trains(host, link) else Status.WARNING
            actual = f"{link.speed_gt_s:g} of {link.speed_max_gt_s:g} GT/s"
            yield _nic(host, NIC_PCIE_SPEED, link, status, actual)


def _trains(host: Subject, link: PcieLink) -> bool:
    return link.address in _rdma_addresses(host) or "nfini" in link.kind


def _nic(host: Subject, check: Check, link: PcieLink, status: Status, actual: str) -> Finding:
    expected = "all lanes" if check is NIC_PCIE_WIDTH else "full speed"
    return host.finding(
        check,
        status,
        link.address,
        expected=expected,
        actual=actual,
        remedy=_SLOT,
        evidence=link.name,
        action="replace",
    )


PCIE_LIMITED = Check(
    "pcie_limited",
    looks_at="dmesg",
    fires="warning: a GPU's or training NIC's slot cannot carry it",
    expected="a slot as fast as the card",
    remedy=_SLOT,
)


@judges(PCIE_LIMITED, reads=("kernel_events", "lab", "gpus", "nics", "ib_ports"))
def limited(host: Subject) -> Iterator[Finding]:
    """The kernel's word on a slot that cannot carry its card; harmless for a card that needs no more."""
    found = host.facts.get("kernel_events")
    if host.borrows("kernel"):
        return
    yield from host.unknown(found, "a slot as fast as the card", PCIE_LIMITED)
    if not isinstance(found, Dmesg):
        return
    fast = _rdma_addresses(host) | {gpu.bus_id.lower() for gpu in gpus_of(host) if gpu.bus_id} | _training(host)
    events = [event for event in found.events if event.kind == "pcie_limited"]
    # without a list of what matters, all of it may
    slow = {event.pci or "?": event for event in events if not fast or (event.pci or "").lower() in fast}
    faults = (
        host.finding(PCIE_LIMITED, Status.WARNING, pci, actual="less bandwidth than it can use", evidence=event.text)
        for pci, event in sorted(slow.items())
    )
    yield from host.all_of(PCIE_LIMITED, faults, actual="none in the log")


def _training(host: Subject) -> set[str]:
    nics, named = host.facts.get("nics"), host.variables.get("nodectl_nics")
    known = nics if isinstance(nics, dict) else {}
    found = [known.get(name) for name in named] if isinstance(named, list) else []
    return {nic.pci_address.lower() for nic in found if isinstance(nic, Nic) and nic.pci_address}
