"""Whether the training interfaces hold what the tuning sets: MTU, rings, interrupts; live and at the next boot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.checks.check import NO_SYSTEMD, NOT_SETTABLE, Check, Subject, failed_unless, judges, provision
from nodectl.checks.network.nics import NO_SUCH_NIC, nics_of, training_names
from nodectl.facts.network import NicQueues, NicSetup
from nodectl.facts.processors import cpu_set
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 12

_AGAIN = provision("nic")
_LIVE = f"{_AGAIN}; what owns the interface may have set it back"

MTU = Check(
    "mtu",
    fires="another MTU than the tuning's",
    remedy=_AGAIN,
    roles=("nic",),
)
RINGS = Check(
    "nic_rings",
    fires="smaller than the device lets them be, where the tuning wants them so",
    expected="the device's maximum",
    remedy=_LIVE,
    roles=("nic",),
)
INTERRUPTS = Check(
    "nic_interrupts",
    fires="served on another NUMA node, where the tuning wants its own; warning: irqbalance moves them",
    expected="on the CPUs of its NUMA node",
    remedy=_LIVE,
    roles=("nic",),
)
AT_BOOT = Check(
    "nic_boot",
    fires="a boot applies other settings than the tuning's",
    expected="as live",
    remedy=_AGAIN,
    roles=("nic",),
)


@judges(MTU, reads=("nics", "nic_setup"))
def mtu(host: Subject) -> Iterator[Finding]:
    """Compare MTUs with the tuning's; if nobody names the training interfaces, of those with a driver."""
    wanted = host.wanted.tuning.nic.mtu if host.wanted else None
    if wanted is None:
        return
    expected = str(wanted.value)
    yield from host.unread(MTU, host.facts.get("nics"), expected)
    nics, named = nics_of(host), _named(host)
    for name in named or [name for name, nic in nics.items() if nic.driver]:
        nic = nics.get(name)
        if nic is None:
            yield host.finding(MTU, Status.FAILED, name, expected=expected, actual="no such NIC", remedy=NO_SUCH_NIC)
        elif named or nic.mtu == wanted.value:
            status = failed_unless(nic.mtu == wanted.value)
            yield host.finding(MTU, status, name, expected=expected, actual=str(nic.mtu))


@judges(RINGS, INTERRUPTS, AT_BOOT, reads=("nic_setup",))
def queues(host: Subject) -> Iterator[Finding]:
    """Rings and interrupts of the training interfaces, and what a boot will set there."""
    wanted = host.wanted.tuning.nic if host.wanted else None
    setup = host.facts.get("nic_setup")
    if wanted is None or not (wanted.mtu or wanted.rings or wanted.irq):
        return
    for check in (RINGS, INTERRUPTS, AT_BOOT):
        yield from host.unread(check, setup, "the tuning's")
    if not isinstance(setup, NicSetup) or host.borrows("sys"):
        return
    names = _named(host)
    for name in names:
        nic = setup.queues.get(name)
        if wanted.rings:
            yield _rings(host, name, nic)
        if wanted.irq:
            yield _interrupts(host, name, nic, setup.balanced)
    yield _at_boot(host, setup, names)


def _named(host: Subject) -> Sequence[str]:
    """Return the inventory's training interfaces, else those that the role found when it set them; empty: not known."""
    setup = host.fact("nic_setup", NicSetup)
    kept = (setup.boot or {}).get("interfaces") if setup else None
    return training_names(host) or ([str(name) for name in kept] if isinstance(kept, list) else [])


def _rings(host: Subject, name: str, nic: NicQueues | None) -> Finding:
    if nic is None or not nic.rings_max:
        actual = f"{NOT_SETTABLE}: it has no ring sizes, or ethtool is not installed"
        return host.finding(RINGS, Status.SKIPPED, name, actual=actual)
    expected, actual = (
        ", ".join(f"{ring} {size}" for ring, size in sorted(sizes.items())) for sizes in (nic.rings_max, nic.rings)
    )
    return host.finding(RINGS, failed_unless(expected == actual), name, expected=expected, actual=actual)


def _interrupts(host: Subject, name: str, nic: NicQueues | None, balanced: bool) -> Finding:
    if nic is None or not nic.local_cpus or not nic.interrupts:
        actual = f"{NOT_SETTABLE}: the device has no NUMA node, or no interrupts of its own"
        return host.finding(INTERRUPTS, Status.SKIPPED, name, actual=actual)
    local, all_of = cpu_set(nic.local_cpus), len(nic.interrupts)
    away = [irq for irq, cpus in nic.interrupts.items() if not cpu_set(cpus) <= local]
    expected = f"{INTERRUPTS.expected} ({nic.local_cpus})"
    if balanced:
        remedy = "set nic_irqbalance to stop, or ban these interrupts in irqbalance's own settings"
        actual = f"irqbalance moves them; {len(away)} of {all_of} elsewhere now"
        return host.finding(INTERRUPTS, Status.WARNING, name, expected=expected, actual=actual, remedy=remedy)
    actual = f"{len(away)} of {all_of} elsewhere" if away else f"all {all_of}"
    return host.finding(INTERRUPTS, failed_unless(not away), name, expected=expected, actual=actual)


def _at_boot(host: Subject, setup: NicSetup, names: Sequence[str]) -> Finding:
    tuning = host.wanted.tuning.nic if host.wanted else None
    if not setup.systemd:
        return host.finding(AT_BOOT, Status.SKIPPED, actual=NO_SYSTEMD)
    if not names:
        actual = "no training interface is known: name them in nodectl_nics"
        return host.finding(AT_BOOT, Status.SKIPPED, expected="training interfaces", actual=actual)
    wanted = {
        "interfaces": list(names),
        "mtu": tuning.mtu.value if tuning and tuning.mtu else 0,
        "rings": bool(tuning and tuning.rings),
        # irqbalance has them where it runs and may stay
        "irq": bool(tuning and tuning.irq) and not setup.balanced,
    }
    kept = {key: value for key, value in (setup.boot or {}).items() if key != "before"}
    actual = "settings as wanted" if kept == wanted else "/etc/nodectl/nic.json holds other settings"
    return host.finding(AT_BOOT, failed_unless(kept == wanted), actual=actual)
