"""Whether the host's Ethernet interfaces carry what they should: link, rate, duplex, errors, bonds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from nodectl.checks.base import About, Check, Subject, held, warned
from nodectl.facts.nics import Nic
from nodectl.model.finding import Finding
from nodectl.model.status import Status

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


def link(host: Subject) -> Iterator[Finding]:
    """The training interfaces are there and up; all have both directions."""
    if training_names(host):
        yield from host.unknown(host.facts.get("nics"), "the interfaces", "nic_link")
    yield from host.unknown(host.facts.get("nics"), "the interfaces", "nic_duplex")
    known = nics_of(host)
    for name in training_names(host):
        nic = known.get(name)
        up = nic is not None and nic.state.lower() in ("up", "unknown") and nic.carrier is not False
        actual = "no such interface" if nic is None else f"{nic.state}{'' if up else ', no carrier'}"
        remedy = f"`ip link set {name} up`; if there is no carrier: {_CABLE}" if nic else "correct nodectl_nics"
        yield host.finding("nic_link", held(up), name, expected="up", actual=actual, remedy=remedy)
    if known:
        half = (
            host.finding("nic_duplex", Status.FAILED, nic.name, expected="full", actual=nic.duplex or "", remedy=_CABLE)
            for nic in _devices(host)
            if nic.duplex == "half"
        )
        yield from host.all_of("nic_duplex", half, expected="full", actual="full, or not told, on all that are up")


def rate(host: Subject) -> Iterator[Finding]:
    """As many interfaces of the rate as the hardware profile names; those of one kind in use agree on theirs."""
    known = nics_of(host)
    wanted = [each for each in host.wanted.hardware.nics if each.kind == "ethernet"] if host.wanted else []
    named = training_names(host)
    for each in wanted:
        need = each.rate_gbit * 1000
        expected = f"{each.count} at {each.rate_gbit:g} Gbit/s"
        remedy = f"look at `ethtool` there: {_CABLE}"
        candidates = [known[name] for name in named if name in known] if named else _devices(host)
        fast = [nic for nic in candidates if nic.speed_mbit is not None and nic.speed_mbit >= need]
        untold = [nic for nic in candidates if nic.speed_mbit is None and nic.state.lower() in ("up", "unknown")]
        if not known:
            yield from host.unknown(host.facts.get("nics"), expected, "nic_count")
            continue
        enough = len(fast) >= each.count
        status = Status.OK if enough else Status.UNKNOWN if len(fast) + len(untold) >= each.count else Status.FAILED
        told = ", ".join(f"{nic.name} {_speed(nic)}" for nic in candidates) or "none"
        yield host.finding("nic_count", status, expected=expected, actual=f"{len(fast)}: {told}", remedy=remedy)
    yield from _agreeing(host)


def _agreeing(host: Subject) -> Iterator[Finding]:
    named = training_names(host)
    known = nics_of(host)
    speeds = {name: known[name].speed_mbit for name in named if name in known}
    told = {name: speed for name, speed in speeds.items() if speed is not None}
    if len(named) < 2:
        return
    yield from host.unknown(host.facts.get("nics"), "one rate", "nic_rate")
    if not told:
        return
    best = max(told.values(), default=0)
    slow = (
        host.finding(
            "nic_rate",
            Status.FAILED,
            name,
            expected=f"{best / 1000:g} Gbit/s, as its fastest sibling",
            actual=f"{speed / 1000:g} Gbit/s",
            remedy=f"look at `ethtool {name}` there: {_CABLE}",
        )
        for name, speed in told.items()
        if speed < best
    )
    yield from host.all_of("nic_rate", slow, expected="one rate", actual=f"{best / 1000:g} Gbit/s")


def _speed(nic: Nic) -> str:
    return "without a rate" if nic.speed_mbit is None else f"{nic.speed_mbit / 1000:g} Gbit/s"


def errors(host: Subject) -> Iterator[Finding]:
    """No errors, few drops and no coming and going of the link since the last reading."""
    yield from host.unknown(host.facts.get("nics"), "the counters", "nic_errors", "nic_drops", "nic_flaps")
    devices = [nic for nic in _devices(host) if nic.counters]
    if not devices:
        return
    told = f"none on {len(devices)} interfaces"
    wrong = [found for nic in devices for found in _errors(host, nic)]
    yield from host.all_of("nic_errors", wrong, expected="none", actual=told)
    dropped = [found for nic in devices for found in _drops(host, nic)]
    yield from host.all_of("nic_drops", dropped, expected="few", actual=f"few; {len(devices)} interfaces")
    flapping = [found for nic in devices for found in _flaps(host, nic)]
    yield from host.all_of("nic_flaps", flapping, expected="a link that stays", actual=told)


def _errors(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name in _ERRORS:
        if name in nic.counters:
            grown = host.growth(f"nic.{nic.name}.{name}", nic.counters[name])
            limit = host.threshold("nic_errors_first" if grown.by is None else "nic_errors")
            if (grown.value if grown.by is None else grown.by) >= limit:
                expected = f"fewer than {limit:g}"
                subject = f"{nic.name} {name}"
                yield host.finding(
                    "nic_errors", Status.WARNING, subject, expected=expected, actual=grown.told, remedy=_CABLE
                )


def _drops(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name in _DROPS:
        if name in nic.counters:
            grown = host.growth(f"nic.{nic.name}.{name}", nic.counters[name])
            limit = host.threshold("nic_drops")
            # drops since boot say nothing of now
            if grown.by is not None and grown.by >= limit:
                remedy = (
                    f"`ethtool -S {nic.name}` names the reason; larger rings (`ethtool -G`) help where they overflow"
                )
                expected = f"fewer than {limit:g} between two readings"
                subject = f"{nic.name} {name}"
                yield host.finding(
                    "nic_drops", Status.WARNING, subject, expected=expected, actual=grown.told, remedy=remedy
                )


def _flaps(host: Subject, nic: Nic) -> Iterator[Finding]:
    changes = nic.counters.get("tx_carrier_changes", nic.counters.get("carrier_changes"))
    if changes is None:
        return
    # down and up again are two changes
    grown = host.growth(f"nic.{nic.name}.carrier_changes", changes)
    limit = host.threshold("link_flaps")
    if grown.by is not None and grown.by >= 2 * limit:
        expected = f"fewer than {limit:g} returns of the link"
        actual = f"{grown.by // 2} in {grown.hours:.1f} h"
        yield host.finding("nic_flaps", Status.WARNING, nic.name, expected=expected, actual=actual, remedy=_CABLE)


def bonds(host: Subject) -> Iterator[Finding]:
    """Each bond has two links at least, all of them up and of one rate."""
    yield from host.unknown(host.facts.get("nics"), "the bonds", "bond")
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
        expected = "two links or more, all up, of one rate"
        actual = "; ".join(problems) or f"{', '.join(nic.name for nic in links)} up"
        remedy = f"`cat /proc/net/bonding/{bond.name}` there; {_CABLE}"
        yield host.finding("bond", warned(not problems), bond.name, expected=expected, actual=actual, remedy=remedy)


def firmware(host: Subject) -> Iterator[Finding]:
    """Interfaces of one driver run one firmware."""
    yield from host.unknown(host.facts.get("nics"), "the firmware", "nic_firmware")
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for nic in _devices(host):
        if nic.firmware and nic.driver:
            # the text ends with the board's name, which may differ
            versions[nic.driver][nic.firmware.split()[0]].append(nic.name)
    yield from host.one_version(
        "nic_firmware", versions, "update the firmware of the older ones, then reboot or reset them"
    )


CHECKS: tuple[Check, ...] = (link, rate, errors, bonds, firmware)
ABOUT = (
    About("nic_link", "the training interfaces (`nodectl_nics`)", "missing, down or without carrier"),
    About("nic_duplex", "sysfs", "half duplex"),
    About("nic_count", "sysfs, where the profile names Ethernet", "fewer interfaces of the profile's rate"),
    About("nic_rate", "the training interfaces", "slower than its siblings"),
    About("nic_errors", "the kernel's counters", "warning: errors since the last reading, or very many since boot"),
    About("nic_drops", "the kernel's counters", "warning: many drops since the last reading"),
    About("nic_flaps", "the kernel's counters", "warning: the link came and went several times"),
    About("bond", "bonds", "warning: a link down, only one, or of different rates"),
    About("nic_firmware", "ethtool -i", "warning: interfaces of one driver with different firmware"),
)
