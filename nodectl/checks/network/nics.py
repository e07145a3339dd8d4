"""Whether the host's Ethernet interfaces carry what they should: link, rate, errors, bonds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, judges_fact, warning_unless
from nodectl.checks.counters import Growth
from nodectl.common.counting import counted
from nodectl.common.system_names import VIRTUAL
from nodectl.facts.kernel import Boot
from nodectl.facts.network import Nic
from nodectl.facts.parsers.linux.dmesg import Dmesg
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 190

_ERRORS = (
    *("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_carrier_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_fifo_errors", "tx_collisions"),
)
_DROPS = ("rx_dropped", "tx_dropped")
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
    """Devices of the host's own, not bridges, bonds or one end of a container's pair."""
    named = training_names(host)
    return [nic for nic in nics_of(host).values() if nic.name in named or is_device(nic)]


LINK_RETURNS_LIMIT = Threshold("link_returns_min", 4, "gpud: a port is lost after 4 min, before that it may come back")
RETURNS = "warning: down for less than 4 min"
DOWN_READS = ("kernel_events", "boot")
NIC_LINK = Check(
    "nic_link",
    looks_at="the training interfaces (`nodectl_nics`)",
    fires=f"missing, down or without carrier; {RETURNS}",
    expected="up",
    thresholds=(LINK_RETURNS_LIMIT,),
)


def may_return(host: Subject, key: str, names: Collection[str | None], *, is_up: bool) -> str:
    """Return `, for 2.0 min at most` of a link that is down and may come back, else nothing.

    It went down as the kernel's log says, else after the reading that saw it up; one that nobody saw up is lost.
    """
    last, name = host.previous, f"{key}.down_since"
    since = last.counters.get(name) if last else None
    if last and since == 0:
        since = int(last.time)
    log, boot = host.fact("kernel_events", Dmesg), host.fact("boot", Boot)
    if log and boot and not is_up:
        changes = [(event.state, event.time or "") for event in log.events if event.device in names and event.state]
        state, time = changes[-1] if changes else ("", "")
        if state == "down" and time.replace(".", "", 1).isdigit():  # seconds since the boot
            since = int(host.time - boot.uptime_s + float(time))
    # 1: long ago; never later than now, as after a clock that was set back
    host.counters[name] = 0 if is_up else min(since or 1, int(host.time))
    minutes = (host.time - host.counters[name]) / 60
    return "" if is_up or minutes > host.threshold(LINK_RETURNS_LIMIT) else f", for {minutes:.1f} min at most"


@judges(NIC_LINK, reads=("nics", *DOWN_READS))
def link(host: Subject) -> Iterator[Finding]:
    """Require the training interfaces to be up."""
    if training_names(host):
        yield from host.unknown(host.facts.get("nics"), "the interfaces", NIC_LINK)
    nics = nics_of(host)
    for name in training_names(host):
        nic = nics.get(name)
        up = nic is not None and nic.state.lower() in ("up", "unknown") and nic.carrier is not False
        how_long = may_return(host, f"nic.{name}", (name,), is_up=up) if nic else ""
        actual = "no such interface" if nic is None else f"{nic.state}{'' if up else f', no carrier{how_long}'}"
        remedy = f"`ip link set {name} up`; if there is no carrier: {_CABLE}" if nic else NO_SUCH_NIC
        status = Status.WARNING if how_long else failed_unless(up)
        yield host.finding(NIC_LINK, status, name, actual=actual, remedy=remedy)


NIC_COUNT = Check(
    "nic_count",
    looks_at="sysfs, where the profile names Ethernet",
    fires="fewer interfaces of the profile's rate",
    remedy=f"look at `ethtool` there: {_CABLE}",
)
NIC_RATE = Check("nic_rate", looks_at="the training interfaces", fires="slower than its siblings", expected="one rate")


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


LINK_FLAPS_LIMIT = Threshold(
    "link_flaps", 3, "gpud: three returns of a link within 12 h; Azure: five losses of carrier in 24 h"
)
FLAPS_HOURS = Threshold("link_flaps_hours", 12, "gpud: three returns of a link within 12 h")
NIC_ERRORS_LIMIT = Threshold("nic_errors", 1, "a wire that is good loses nothing between two readings")
NIC_ERRORS_FIRST_LIMIT = Threshold("nic_errors_first", 1000, "without an earlier reading only a clear number counts")
NIC_DROPS_LIMIT = Threshold("nic_drops", 10_000, "drops of unknown protocols are counted too, so a few mean nothing")


def counting(name: str, looks_at: str, fires: str, expected: str, remedy: str, *limits: Threshold) -> Check:
    """Return the check of counters that these limits judge."""
    return Check(name, looks_at, fires, expected, remedy, thresholds=limits)


_COUNTERS, _ROSE = "the kernel's counters", "warning: errors since the last reading, or very many since boot"
_FLAPPED = "warning: the link came and went several times; failed: a training interface's, within 12 h"
NIC_ERRORS = counting("nic_errors", _COUNTERS, _ROSE, "none", _CABLE, NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT)
NIC_DROPS = counting("nic_drops", _COUNTERS, "warning: many drops since the last reading", "few", "", NIC_DROPS_LIMIT)
NIC_FLAPS = counting("nic_flaps", _COUNTERS, _FLAPPED, "a link that stays", _CABLE, LINK_FLAPS_LIMIT, FLAPS_HOURS)


def flaps(host: Subject, key: str, grown: Growth, each: int = 1) -> tuple[Growth, bool]:
    """Return a link's losses (`each` counts so many) over the readings of some hours, and whether they are too many."""
    last, hours = host.previous, host.threshold(FLAPS_HOURS)
    since, base = (last.counters.get(f"{key}.{name}") if last else None for name in ("flaps_since", "flaps_from"))
    if last is None or grown.by is None:
        since, base = int(host.time), grown.value
    elif since is None or base is None or not 0 <= host.time - since <= 3600 * hours:  # the clock may be set back
        since, base = int(min(last.time, host.time)), grown.value - grown.by
    host.counters.update({f"{key}.flaps_since": since, f"{key}.flaps_from": base})
    seen = Growth(grown.value // each, (grown.value - base) // each, (host.time - since) / 3600)
    return seen, seen.change / max(1.0, seen.hours / hours) >= host.threshold(LINK_FLAPS_LIMIT)


@judges_fact(dict, NIC_ERRORS, NIC_DROPS, NIC_FLAPS, reads=("nics",), unread="the counters")
def errors(host: Subject, _nics: dict[str, Nic]) -> Iterator[Finding]:
    """No errors, few drops and no coming and going of the link since the last reading."""
    devices = [nic for nic in _devices(host) if nic.counters]
    rows = ((NIC_ERRORS, _errors, "none on"), (NIC_DROPS, _drops, "few;"), (NIC_FLAPS, _flaps, "none on"))
    for check, judge, few in rows:
        faults = (fault for nic in devices for fault in judge(host, nic))
        if devices:
            yield from host.all_of(check, faults, actual=f"{few} {counted(len(devices), 'interface')}")


def _errors(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name, grown in _grown(host, nic, _ERRORS):
        if host.limit_reached(grown, NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT) is not None:
            subject = f"{nic.name} {name}"
            yield from host.grew(NIC_ERRORS, subject, grown, NIC_ERRORS_LIMIT, NIC_ERRORS_FIRST_LIMIT)


def _drops(host: Subject, nic: Nic) -> Iterator[Finding]:
    for name, grown in _grown(host, nic, _DROPS):
        if host.limit_reached(grown, NIC_DROPS_LIMIT, None) is not None:
            subject, over = f"{nic.name} {name}", " between two readings"
            remedy = f"`ethtool -S {nic.name}` names the reason; larger rings (`ethtool -G`) help where they overflow"
            yield from host.grew(NIC_DROPS, subject, grown, NIC_DROPS_LIMIT, None, over=over, remedy=remedy)


def _grown(host: Subject, nic: Nic, names: tuple[str, ...]) -> Iterator[tuple[str, Growth]]:
    counters, prefix = nic.counters, f"nic.{nic.name}."
    for name in names:
        if name in counters:
            yield name, host.growth(prefix + name, counters[name])


def _flaps(host: Subject, nic: Nic) -> Iterator[Finding]:
    changes = nic.counters.get("tx_carrier_changes", nic.counters.get("carrier_changes"))
    if changes is None:
        return
    # down and up again are two changes
    grown = host.growth(f"nic.{nic.name}.carrier_changes", changes)
    limit, (seen, often) = host.threshold(LINK_FLAPS_LIMIT), flaps(host, f"nic.{nic.name}", grown, each=2)
    failed = often and nic.name in training_names(host)
    if failed or (grown.by is not None and grown.by >= 2 * limit):
        expected, status = f"fewer than {limit:g} returns of the link", Status.FAILED if failed else Status.WARNING
        action = "drain" if failed else "none"
        yield host.finding(NIC_FLAPS, status, nic.name, expected=expected, actual=seen.text, action=action)


BOND = Check(
    "bond",
    looks_at="bonds",
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
