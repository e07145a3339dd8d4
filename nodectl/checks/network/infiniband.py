"""Whether InfiniBand and RoCE ports are there, up and as fast as the hardware profile says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.checks.network.nics import training_names
from nodectl.facts.ib_ports import IbPort
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.schema import Nic as WantedNic

ORDER = 200

_CABLE = "reseat or change the cable, then look at the switch's port (`iblinkinfo`, `ibdiagnet`)"
_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}
# a rate is never quite what it is called: 56 is FDR's 54.54
_NEARLY = 0.95


def ports_of(host: Subject) -> tuple[IbPort, ...]:
    """The host's ports; none where they could not be read."""
    found = host.facts.get("ib_ports")
    return tuple(each for each in found if isinstance(each, IbPort)) if isinstance(found, tuple) else ()


def is_active(port: IbPort) -> bool:
    """Its logical state is ACTIVE, in the words of sysfs (`4: ACTIVE`) or ibstat (`Active`)."""
    return (port.state or "").rpartition(" ")[2].lower() == "active"


def rdma_of_profile(host: Subject) -> list[WantedNic]:
    """The InfiniBand and RoCE interfaces that the hardware profile names."""
    return [each for each in host.wanted.hardware.nics if each.kind in _LAYERS] if host.wanted else []


def _is_fast(port: IbPort, rate_gbit: float) -> bool:
    return port.rate_gbit_s is not None and port.rate_gbit_s >= _NEARLY * rate_gbit


def serving(host: Subject) -> tuple[IbPort, ...]:
    """Ports that a job would use: of the profile's kind, and of the named interfaces where some are named."""
    layers = {_LAYERS[each.kind] for each in rdma_of_profile(host)}
    named = training_names(host)
    return tuple(
        port
        for port in ports_of(host)
        if (not layers or port.link_layer in (None, *layers)) and (not named or port.netdev in (None, *named))
    )


IB_COUNT = Check(
    "ib_count",
    looks_at="RDMA ports, where the profile names some",
    fires="fewer active ports of the profile's rate",
    remedy="look at `ibstat` and `lspci -d 15b3:` there; `dmesg` says why a device is gone",
    roles=("rdma",),
)


@judges(IB_COUNT, reads=("ib_ports",))
def count(host: Subject) -> Iterator[Finding]:
    """As many active ports of the rate as the hardware profile names."""
    found = host.facts.get("ib_ports")
    for each in rdma_of_profile(host):
        expected = f"{each.count} active at {each.rate_gbit:g} Gbit/s or more"
        if isinstance(found, Unread) and found.kind == "unknown":
            yield from host.unread(IB_COUNT, found, expected)
            continue
        ports = [port for port in ports_of(host) if port.link_layer in (None, _LAYERS[each.kind])]
        good = [port for port in ports if is_active(port) and _is_fast(port, each.rate_gbit)]
        dim = [port for port in ports if port not in good and None in (port.state, port.rate_gbit_s)]
        actual = found.reason if isinstance(found, Unread) else f"{len(good)} of {len(ports)} ports"
        status = failed_unless(len(good) >= each.count)
        if status is Status.FAILED and len(good) + len(dim) >= each.count:
            status, actual = Status.UNKNOWN, f"{actual}; of {len(dim)} state or rate is not told"
        yield host.finding(IB_COUNT, status, expected=expected, actual=actual)


def _spare(host: Subject) -> bool:
    """There are enough good ports without the others: what is down is not in use."""
    wanted = rdma_of_profile(host)
    if not wanted:
        return False
    ports = ports_of(host)
    return all(
        len([p for p in ports if p.link_layer in (None, _LAYERS[w.kind]) and is_active(p) and _is_fast(p, w.rate_gbit)])
        >= w.count
        for w in wanted
    )


IB_STATE = Check(
    "ib_state",
    looks_at="each port that a job would use",
    fires="not active; a warning where no profile wants it",
    expected="active",
    roles=("rdma",),
)
IB_PHYSICAL = Check(
    "ib_physical", looks_at="each port that a job would use", fires="no link", expected="LinkUp", remedy=_CABLE
)


@judges(IB_STATE, IB_PHYSICAL, reads=("ib_ports",))
def states(host: Subject) -> Iterator[Finding]:
    """Each port that a job would use is active, with its link up."""
    yield from host.unknown(host.facts.get("ib_ports"), "the ports' states", IB_STATE, IB_PHYSICAL)
    ports, spare = serving(host), _spare(host)
    if not ports:
        return
    # an Ethernet port without a cable is common; one of InfiniBand is there to be used
    bad = Status.FAILED if rdma_of_profile(host) or training_names(host) else Status.WARNING
    judged = [port for port in ports if not spare and (port.link_layer != "Ethernet" or bad is Status.FAILED)]
    down = (_state(host, port, bad) for port in judged if port.state is None or not is_active(port))
    actual = f"{sum(map(is_active, ports))} of {len(ports)} active" + ("; the others are spare" if spare else "")
    yield from host.all_of(IB_STATE, down, actual=actual)
    physical = (
        host.finding(
            IB_PHYSICAL,
            Status.UNKNOWN if port.physical_state is None else bad,
            port.label,
            actual=port.physical_state or "not told",
        )
        for port in judged
        if (port.physical_state or "").replace(" ", "").rpartition(":")[2].lower() not in ("linkup", "active")
    )
    yield from host.all_of(IB_PHYSICAL, physical, actual=actual)


def _state(host: Subject, port: IbPort, bad: Status) -> Finding:
    status = Status.UNKNOWN if port.state is None else bad
    initialising = (port.state or "").rpartition(" ")[2].lower() in ("init", "initializing")
    remedy = "no subnet manager has set it up: see `sminfo`, and start opensm" if initialising else _CABLE
    return host.finding(IB_STATE, status, port.label, actual=port.state or "not told", remedy=remedy)


IB_RATE = Check(
    "ib_rate",
    looks_at="active ports",
    fires="slower than the profile's, or (of Ethernet: warning) than its siblings",
    remedy=f"the link came up slower than both ends can: {_CABLE}",
)
IB_WIDTH = Check(
    "ib_width",
    looks_at="active ports",
    fires="fewer lanes than its siblings",
    expected="one width",
    remedy=f"a lane is lost: {_CABLE}",
)


@judges(IB_RATE, IB_WIDTH, reads=("ib_ports",))
def rates(host: Subject) -> Iterator[Finding]:
    """Active ports have the profile's rate, and the width and rate of their siblings."""
    yield from host.unknown(host.facts.get("ib_ports"), "the ports' rates", IB_RATE, IB_WIDTH)
    ports = [port for port in serving(host) if is_active(port)]
    if not ports:
        return
    wanted = max((each.rate_gbit for each in rdma_of_profile(host)), default=None)
    best: dict[str | None, float] = {}
    for port in ports:
        best[port.link_layer] = max(best.get(port.link_layer, 0.0), port.rate_gbit_s or 0.0)
    spare = _spare(host)
    slow = (
        _slow(host, port, need, named=wanted is not None)
        for port in ports
        if not spare and not _is_fast(port, need := best[port.link_layer] if wanted is None else wanted)
    )
    rated = " or ".join(f"{each:g} Gbit/s" for each in ([wanted] if wanted is not None else best.values()))
    yield from host.all_of(IB_RATE, slow, expected=rated, actual=f"{len(ports)} ports have it")
    widths = [port.width for port in ports if port.width is not None]
    narrow = (
        host.finding(
            IB_WIDTH, Status.FAILED, port.label, expected=f"{max(widths)} lanes, as its siblings",
            actual=str(port.width),
        )
        for port in ports
        if port.width is not None and port.width < max(widths)
    )  # fmt: skip
    if widths:
        yield from host.all_of(IB_WIDTH, narrow, actual=f"{max(widths)} lanes")


def _slow(host: Subject, port: IbPort, need_gbit: float, *, named: bool) -> Finding:
    """Where no profile says otherwise, a slower Ethernet port may be there for something else."""
    if port.rate_gbit_s is None:
        status, actual = Status.UNKNOWN, "not told"
    else:
        status = Status.FAILED if named or port.link_layer != "Ethernet" else Status.WARNING
        actual = f"{port.rate_gbit_s:g} Gbit/s"
    expected = f"{need_gbit:g} Gbit/s" if named else f"{need_gbit:g} Gbit/s, as its fastest sibling"
    return host.finding(IB_RATE, status, port.label, expected=expected if need_gbit else "a rate", actual=actual)


IB_LINK_LAYER = Check(
    "ib_link_layer",
    looks_at="all ports",
    fires="Ethernet where InfiniBand is wanted, or the other way round",
    remedy="set the ports' type with `mlxconfig -d DEVICE set LINK_TYPE_P1=1` (InfiniBand) or 2 (Ethernet), reboot",
)


@judges(IB_LINK_LAYER, reads=("ib_ports",))
def layers(host: Subject) -> Iterator[Finding]:
    """Ports are of the kind that the profile names."""
    wanted = rdma_of_profile(host)
    kinds = {_LAYERS[each.kind] for each in wanted}
    ports = [port for port in ports_of(host) if port.link_layer is not None]
    if len(kinds) != 1:
        return
    yield from host.unknown(host.facts.get("ib_ports"), "the ports' kinds", IB_LINK_LAYER)
    if not ports:
        return
    (kind,) = kinds
    there = [port for port in ports if port.link_layer == kind]
    needed = sum(each.count for each in wanted)
    actual = f"{len(there)} of {len(ports)} ports"
    expected = f"{needed} ports of {kind}"
    status = failed_unless(len(there) >= needed or len(ports) < needed)
    yield host.finding(IB_LINK_LAYER, status, expected=expected, actual=actual)


IB_FIRMWARE = Check("ib_firmware", looks_at="devices of one board", fires="warning: different firmware")


@judges(IB_FIRMWARE, reads=("ib_ports",))
def firmware(host: Subject) -> Iterator[Finding]:
    """Devices of one board run one firmware."""
    yield from host.unknown(host.facts.get("ib_ports"), "the devices' firmware", IB_FIRMWARE)
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in ports_of(host):
        if port.firmware and port.board_id:
            versions[port.board_id][port.firmware].append(port.device)
    remedy = "update the older ones (`mlxfwmanager`), then `mlxfwreset` or reboot"
    yield from host.one_version(IB_FIRMWARE, versions, remedy)
