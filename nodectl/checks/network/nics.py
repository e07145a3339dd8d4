"""Whether the host's Ethernet interfaces carry what they should: link, rate, duplex, errors, bonds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, warning_unless
from nodectl.facts.nics import Nic
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 190

_ERRORS = (
    *("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_carrier_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_fifo_errors", "tx_collisions"),
)
_DROPS = ("rx_dropped", "tx_dropped")
_CABLE = "clean or change cable and transceiver, then look at the switch's port"


def nics_of(host: Subject) -> dict[str, Nic]:
    """The host's interfaces by name; empty where they could not be read."""
    found = host.facts.get("nics")
    known = found if isinstance(found, Mapping) else {}
    return {str(name): nic for name, nic in known.items() if isinstance(nic, Nic)}


def training_names(host: Subject) -> list[str]:
    """The interfaces that the inventory names for training."""
    named = host.variables.get("nodectl_nics")
    return [str(name) for name in named] if isinstance(named, list) else []


def _devices(host: Subject) -> list[Nic]:
    """Devices of the host's own, not bridges, bonds or one end of a container's pair."""
    named = training_names(host)
    return [nic for nic in nics_of(host).values() if nic.name in named or (nic.driver and nic.kind is None)]


NIC_LINK = Check(
    "nic_link",
    looks_at="the training interfaces (`nodectl_nics`)",
    fires="missing, down or without carrier",
    expected="up",
)
NIC_DUPLEX = Check("nic_duplex", looks_at="sysfs", fires="half duplex", expected="full", remedy=_CABLE)


@judges(NIC_LINK, NIC_DUPLEX, reads=("nics",))
def link(host: Subject) -> Iterator[Finding]:
    """The training interfaces are there and up; all have both directions."""
    if training_names(host):
        yield from host.unknown(host.facts.get("nics"), "the interfaces", NIC_LINK)
    yield from host.unknown(host.facts.get("nics"), "the interfaces", NIC_DUPLEX)
    known = nics_of(host)
    for name in training_names(host):
        nic = known.get(name)
        up = nic is not None and nic.state.lower() in ("up", "unknown") and nic.carrier is not False
        actual = "no such interface" if nic is None else f"{nic.state}{'' if up else ', no carrier'}"
        remedy = f"`ip link set {name} up`; if there is no carrier: {_CABLE}" if nic else "correct nodectl_nics"
        yield host.finding(NIC_LINK, failed_unless(up), name, actual=actual, remedy=remedy)
    if known:
        half = (
            host.finding(NIC_DUPLEX, Status.FAILED, nic.name, actual=nic.duplex or "")
            for nic in _devices(host)
            if nic.duplex == "half"
        )
        yield from host.all_of(NIC_DUPLEX, half, actual="full, or not told, on all that are up")


NIC_COUNT = Check(
    "nic_count",
    looks_at="sysfs, where the profile names Ethernet",
    fires="fewer interfaces of the profile's rate",
    remedy=f"look at `ethtool` there: {_CABLE}",
)
NIC_RATE = Check("nic_rate", looks_at="the training interfaces", fires="slower than its siblings", expected="one rate")


@judges(NIC_COUNT, NIC_RATE, reads=("nics",))
def rate(host: Subject) -> Iterator[Finding]:
    """As many interfaces of the rate as the hardware profile names; those of one kind in use agree on theirs."""
    known = nics_of(host)
    wanted = [each for each in host.wanted.hardware.nics if each.kind == "ethernet"] if host.wanted else []
    named = training_names(host)
    for each in wanted:
        need = each.rate_gbit * 1000
        expected = f"{each.count} at {each.rate_gbit:g} Gbit/s"
        candidates = [known[name] for name in named if name in known] if named else _devices(host)
        fast = [nic for nic in candidates if nic.speed_mbit is not None and nic.speed_mbit >= need]
        untold = [nic for nic in candidates if nic.speed_mbit is None and nic.state.lower() in ("up", "unknown")]
        if not known:
            yield from host.unknown(host.facts.get("nics"), expected, NIC_COUNT)
            continue
        enough = len(fast) >= each.count
        status = Status.OK if enough else Status.UNKNOWN if len(fast) + len(untold) >= each.count else Status.FAILED
        told = ", ".join(f"{nic.name} {_speed(nic)}" for nic in candidates) or "none"
        yield host.finding(NIC_COUNT, status, expected=expected, actual=f"{len(fast)}: {told}")
    yield from _agreeing(host)


def _agreeing(host: Subject) -> Iterator[Finding]:
    named = training_names(host)
    known = nics_of(host)
    speeds = {name: known[name].speed_mbit for name in named if name in known}
    told = {name: speed for name, speed in speeds.items() if speed is not None}
    if len(named) < 2:
        return
    yield from host.unknown(host.facts.get("nics"), "one rate", NIC_RATE)
    if not told:
        return
    best = max(told.values(), default=0)
    slow = (
        host.finding(
            NIC_RATE,
            Status.FAILED,
            name,
            expected=f"{best / 1000:g} Gbit/s, as its fastest sibling",
            actual=f"{speed / 1000:g} Gbit/s",
            remedy=f"look at `ethtool {name}` there: {_CABLE}",
        )
        for name, speed in told.items()
        if speed < best
    )
    yield from host.all_of(NIC_RATE, slow, actual=f"{best / 1000:g} Gbit/s")


def _speed(nic: Nic) -> str:
    return "without a rate" if nic.speed_mbit is None else f"{nic.speed_mbit / 1000:g} Gbit/s"


LINK_FLAPS_LIMIT = Threshold(
    "link_flaps", 3, "gpud: three returns of a link within 12 h; Azure: five losses of carrier in 24 h"
)
NIC_ERRORS_LIMIT = Threshold("nic_errors", 1, "a wire that is good loses nothing between two readings")
NIC_ERRORS_FIRST_LIMIT = Threshold("nic_errors_first", 1000, "without an earlier reading only a clear number counts")
NIC_DROPS_LIMIT = Threshold("nic_drops", 10_000, "drops of unknown protocols are counted too, so a few mean nothing")
NIC_ERRORS = Check(
    "nic_errors",
    looks_at="the kernel's counters",
    fires="warning: errors since the last reading, or very many since boot",
    expected="none",
    remedy=_CABLE,
    thresholds=(NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT),
)
NIC_DROPS = Check(
    "nic_drops",
    looks_at="the kernel's counters",
    fires="warning: many drops since the last reading",
    expected="few",
    thresholds=(NIC_DROPS_LIMIT,),
)
NIC_FLAPS = Check(
    "nic_flaps",
    looks_at="the kernel's counters",
    fires="warning: the link came and went several times",
    expected="a link that stays",
    remedy=_CABLE,
    thresholds=(LINK_FLAPS_LIMIT,),
)


@judges(NIC_ERRORS, NIC_DROPS, NIC_FLAPS, reads=("nics",))
def errors(host: Subject) -> Iterator[Finding]:
    """No errors, few drops and no coming and going of the link since the last reading."""
    yield from host.unknown(host.facts.get("nics"), "the counters", NIC_ERRORS, NIC_DROPS, NIC_FLAPS)
    devices = [nic for nic in _devices(host) if nic.counters]
    if not devices:
        return
    told = f"none on {len(devices)} interfaces"
    wrong = [found for nic in devices for found in _errors(host, nic)]
    yield from host.all_of(NIC_ERRORS, wrong, actual=told)
    dropped = [found for nic in devices for found in _drops(host, nic)]
    yield from host.all_of(NIC_DROPS, dropped, actual=f"few; {len(devices)} interfaces")
    flapping = [found for nic in devices for found in _flaps(host, nic)]
    yield from host.all_of(NIC_FLAPS, flapping, actual=told)


def _errors(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name in _ERRORS:
        if name in nic.counters:
            grown = host.growth(f"nic.{nic.name}.{name}", nic.counters[name])
            limit = host.threshold(NIC_ERRORS_FIRST_LIMIT if grown.by is None else NIC_ERRORS_LIMIT)
            if (grown.value if grown.by is None else grown.by) >= limit:
                expected = f"fewer than {limit:g}"
                subject = f"{nic.name} {name}"
                yield host.finding(NIC_ERRORS, Status.WARNING, subject, expected=expected, actual=grown.text)


def _drops(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name in _DROPS:
        if name in nic.counters:
            grown = host.growth(f"nic.{nic.name}.{name}", nic.counters[name])
            limit = host.threshold(NIC_DROPS_LIMIT)
            # drops since boot say nothing of now
            if grown.by is not None and grown.by >= limit:
                remedy = (
                    f"`ethtool -S {nic.name}` names the reason; larger rings (`ethtool -G`) help where they overflow"
                )
                expected = f"fewer than {limit:g} between two readings"
                subject = f"{nic.name} {name}"
                yield host.finding(
                    NIC_DROPS, Status.WARNING, subject, expected=expected, actual=grown.text, remedy=remedy
                )


def _flaps(host: Subject, nic: Nic) -> Iterator[Finding]:
    changes = nic.counters.get("tx_carrier_changes", nic.counters.get("carrier_changes"))
    if changes is None:
        return
    # down and up again are two changes
    grown = host.growth(f"nic.{nic.name}.carrier_changes", changes)
    limit = host.threshold(LINK_FLAPS_LIMIT)
    if grown.by is not None and grown.by >= 2 * limit:
        expected = f"fewer than {limit:g} returns of the link"
        actual = f"{grown.by // 2} in {grown.hours:.1f} h"
        yield host.finding(NIC_FLAPS, Status.WARNING, nic.name, expected=expected, actual=actual)


BOND = Check(
    "bond",
    looks_at="bonds",
    fires="warning: a link down, only one, or of different rates",
    expected="two links or more, all up, of one rate",
)


@judges(BOND, reads=("nics",))
def bonds(host: Subject) -> Iterator[Finding]:
    """Each bond has two links at least, all of them up and of one rate."""
    yield from host.unknown(host.facts.get("nics"), "the bonds", BOND)
    known = nics_of(host)
    parts: dict[str, list[Nic]] = defaultdict(list)
    for nic in known.values():
        if nic.master in known:
            parts[str(nic.master)].append(nic)
    for bond in (nic for nic in known.values() if nic.bond_mode or nic.kind == "bond"):
        links = parts[bond.name]
        down = [nic.name for nic in links if nic.carrier is False or nic.state.lower() == "down"]
        rates = {nic.speed_mbit for nic in links if nic.speed_mbit and nic.name not in down}
        problems = [
            *([f"{', '.join(down)} down"] if down else []),
            *(["only one link"] if len(links) == 1 else []),
            *(["no link"] if not links else []),
            *(
                [f"rates differ: {', '.join(f'{each / 1000:g}' for each in sorted(rates))} Gbit/s"]
                if rates and len(rates) > 1
                else []
            ),
        ]
        actual = "; ".join(problems) or f"{', '.join(nic.name for nic in links)} up"
        remedy = f"`cat /proc/net/bonding/{bond.name}` there; {_CABLE}"
        yield host.finding(BOND, warning_unless(not problems), bond.name, actual=actual, remedy=remedy)


NIC_FIRMWARE = Check(
    "nic_firmware", looks_at="ethtool -i", fires="warning: interfaces of one driver with different firmware"
)


@judges(NIC_FIRMWARE, reads=("nics",))
def firmware(host: Subject) -> Iterator[Finding]:
    """Interfaces of one driver run one firmware."""
    yield from host.unknown(host.facts.get("nics"), "the firmware", NIC_FIRMWARE)
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for nic in _devices(host):
        if nic.firmware and nic.driver:
            # the text ends with the board's name, which may differ
            versions[nic.driver][nic.firmware.split()[0]].append(nic.name)
    yield from host.one_version(
        NIC_FIRMWARE, versions, "update the firmware of the older ones, then reboot or reset them"
    )
