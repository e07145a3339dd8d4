"""Whether the host's Ethernet interfaces carry what they should: link, rate, errors, bonds."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, judges_fact, warning_unless
from nodectl.common.counting import counted
from nodectl.common.system_names import VIRTUAL
from nodectl.facts.network import Nic
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 190

_ERRORS = (
    *("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_carrier_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_fifo_errors", "tx_collisions"),
)
NO_SUCH_NIC = (
    "look whether the adapter is lost (`lspci | grep -i ethernet`, `dmesg`) or has another name now (`ip link`); "
    "only if it was never there: correct nodectl_nics"
)
_CABLE = "clean or change cable and transceiver, then look at the switch's port"


def nics_of(host: Subject) -> dict[str, Nic]:
    """Return the host's interfaces by name; empty if they could not be read."""
    return host.fact("nics", dict) or {}


def training_names(host: Subject) -> list[str]:
    """Return the interfaces that the inventory names for training."""
    named = host.variables.get("nodectl_nics")
    return [str(name) for name in named] if isinstance(named, list) else []


def is_own(nic: Nic) -> bool:
    """Tell whether an interface is in use and not made by containers or virtual machines."""
    return bool(nic.addresses) and not nic.name.startswith(VIRTUAL) and nic.kind not in ("bridge", "tun", "dummy")


def is_device(nic: Nic) -> bool:
    """Return whether it is a device of the host's own, not one that is made of others."""
    return bool(nic.driver) and nic.kind is None


def _devices(host: Subject) -> list[Nic]:
    named = training_names(host)
    return [nic for nic in nics_of(host).values() if nic.name in named or is_device(nic)]


NIC_LINK = Check(
    "nic_link", fires="a training interface (`nodectl_nics`) is missing, down or without carrier", expected="up"
)


@judges(NIC_LINK, reads=("nics",))
def link(host: Subject) -> Iterator[Finding]:
    """Require the training interfaces to be up."""
    if training_names(host):
        yield from host.unknown(host.facts.get("nics"), "the interfaces", NIC_LINK)
    nics = nics_of(host)
    for name in training_names(host):
        nic = nics.get(name)
        up = nic is not None and nic.state.lower() in ("up", "unknown") and nic.carrier is not False
        actual = "no such interface" if nic is None else f"{nic.state}{'' if up else ', no carrier'}"
        remedy = f"`ip link set {name} up`; if there is no carrier: {_CABLE}" if nic else NO_SUCH_NIC
        yield host.finding(NIC_LINK, failed_unless(up), name, actual=actual, remedy=remedy)


NIC_COUNT = Check(
    "nic_count",
    fires="fewer interfaces of the profile's rate",
    remedy=f"look at `ethtool` there: {_CABLE}",
)
NIC_RATE = Check("nic_rate", fires="slower than its siblings", expected="one rate")


@judges(NIC_COUNT, NIC_RATE, reads=("nics",))
def rate(host: Subject) -> Iterator[Finding]:
    """Require as many interfaces of the rate as the hardware profile names, and one rate of those in use."""
    nics = nics_of(host)
    named = training_names(host)
    for wanted in host.wanted.hardware.nics if host.wanted else ():
        if wanted.kind != "ethernet":
            continue
        need = wanted.rate_gbit * 1000
        expected = f"{wanted.count} at {wanted.rate_gbit:g} Gbit/s"
        candidates = [nics[name] for name in named if name in nics] if named else _devices(host)
        fast = [nic for nic in candidates if nic.speed_mbit is not None and nic.speed_mbit >= need]
        untold = [nic for nic in candidates if nic.speed_mbit is None and nic.state.lower() in ("up", "unknown")]
        if not nics:
            yield from host.unread(NIC_COUNT, host.facts.get("nics"), expected, promised=True)
            continue
        status = failed_unless(len(fast) >= wanted.count)
        if status is Status.FAILED and len(fast) + len(untold) >= wanted.count:
            status = Status.UNKNOWN
        rates = ", ".join(f"{nic.name} {_speed(nic)}" for nic in candidates) or "none"
        yield host.finding(NIC_COUNT, status, expected=expected, actual=f"{len(fast)}: {rates}")
    yield from _agreeing(host)


def _agreeing(host: Subject) -> Iterator[Finding]:
    named, nics = training_names(host), nics_of(host)
    if len(named) < 2:
        return
    yield from host.unknown(host.facts.get("nics"), "one rate", NIC_RATE)
    rated = [nic for name in named if (nic := nics.get(name)) and nic.speed_mbit is not None]
    best = max(rated, key=lambda nic: nic.speed_mbit or 0, default=None)
    if best is not None:
        slow = (_slow(host, nic, _speed(best)) for nic in rated if (nic.speed_mbit or 0) < (best.speed_mbit or 0))
        yield from host.all_of(NIC_RATE, slow, actual=_speed(best))


def _slow(host: Subject, nic: Nic, best: str) -> Finding:
    expected, remedy = f"{best}, as its fastest sibling", f"look at `ethtool {nic.name}` there: {_CABLE}"
    return host.finding(NIC_RATE, Status.FAILED, nic.name, expected=expected, actual=_speed(nic), remedy=remedy)


def _speed(nic: Nic) -> str:
    return "without a rate" if nic.speed_mbit is None else f"{nic.speed_mbit / 1000:g} Gbit/s"


LINK_FLAPS_LIMIT = Threshold("link_flaps", 3, "gpud and Azure: a link that returns several times between two readings")
NIC_ERRORS_LIMIT = Threshold("nic_errors", 1, "a wire that is good loses nothing between two readings")
NIC_ERRORS_FIRST_LIMIT = Threshold("nic_errors_first", 1000, "without an earlier reading only a clear number counts")
NIC_ERRORS = Check(
    "nic_errors",
    fires="warning: errors since the last reading, or very many since boot",
    expected="none",
    remedy=_CABLE,
    thresholds=(NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT),
)
NIC_FLAPS = Check(
    "nic_flaps",
    fires="a training interface's link came and went several times since the last reading; warning: another's",
    expected="a link that stays",
    remedy=_CABLE,
    thresholds=(LINK_FLAPS_LIMIT,),
)


@judges_fact(dict, NIC_ERRORS, NIC_FLAPS, reads=("nics",), unread="the counters")
def errors(host: Subject, _nics: dict[str, Nic]) -> Iterator[Finding]:
    """No errors, and no coming and going of the link since the last reading."""
    devices = [nic for nic in _devices(host) if nic.counters]
    for check, judge in ((NIC_ERRORS, _errors), (NIC_FLAPS, _flaps)) if devices else ():
        faults = (fault for nic in devices for fault in judge(host, nic))
        yield from host.all_of(check, faults, actual=f"none on {counted(len(devices), 'interface')}")


def _errors(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name in _ERRORS:
        if name in nic.counters:
            subject, grown = f"{nic.name} {name}", host.growth(f"nic.{nic.name}.{name}", nic.counters[name])
            yield from host.grew(NIC_ERRORS, subject, grown, NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT)


def _flaps(host: Subject, nic: Nic) -> Iterator[Finding]:
    changes = nic.counters.get("tx_carrier_changes", nic.counters.get("carrier_changes"))
    if changes is None:
        return
    grown, limit = host.growth(f"nic.{nic.name}.carrier_changes", changes), host.threshold(LINK_FLAPS_LIMIT)
    # down and up again are two changes
    if grown.by is not None and grown.by >= 2 * limit:
        is_training = nic.name in training_names(host)
        status, action = (Status.FAILED, "drain") if is_training else (Status.WARNING, "none")
        expected = f"fewer than {limit:g} returns of the link"
        yield host.finding(NIC_FLAPS, status, nic.name, expected=expected, actual=grown.text, action=action)


BOND = Check(
    "bond",
    fires="warning: a link down, only one, or of different rates",
    expected="two links or more, all up, of one rate",
)


@judges_fact(dict, BOND, reads=("nics",), unread="the bonds")
def bonds(host: Subject, nics: dict[str, Nic]) -> Iterator[Finding]:
    """Each bond has two links at least, all of them up and of one rate."""
    for bond in (nic for nic in nics.values() if nic.bond_mode or nic.kind == "bond"):
        links = [nic for nic in nics.values() if nic.master == bond.name]
        down = [nic.name for nic in links if nic.carrier is False or nic.state.lower() == "down"]
        rates = {nic.speed_mbit for nic in links if nic.speed_mbit and nic.name not in down}
        problems = [f"{', '.join(down)} down"] if down else []
        if len(links) < 2:
            problems.append("only one link" if links else "no link")
        if len(rates) > 1:
            problems.append(f"rates differ: {', '.join(f'{rate / 1000:g}' for rate in sorted(rates))} Gbit/s")
        actual = "; ".join(problems) or f"{', '.join(nic.name for nic in links)} up"
        remedy = f"`cat /proc/net/bonding/{bond.name}` there; {_CABLE}"
        yield host.finding(BOND, warning_unless(not problems), bond.name, actual=actual, remedy=remedy)
