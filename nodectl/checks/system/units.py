"""Whether systemd's units run as they should, and what it gives them: limits.conf does not reach units."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import About, Check, Subject, warned
from nodectl.facts.base import whole
from nodectl.facts.unit_limits import UnitLimits
from nodectl.facts.units import Unit, Units
from nodectl.model.finding import Finding
from nodectl.model.status import Status

# a job must not meet a driver or a library that is replaced under it
_UNWANTED = ("unattended-upgrades",)
# judged where the hardware that they serve is
_ELSEWHERE = ("nvidia-persistenced", "nvidia-fabricmanager")
_CLOCK = ("chrony", "chronyd", "ntpd", "systemd-timesyncd")
_LIMITS = {"memlock": "LimitMEMLOCK", "nofile": "LimitNOFILE"}
_KIB = 1024


def failed(host: Subject) -> Iterator[Finding]:
    """No unit failed; what is enabled runs; nothing upgrades packages by itself."""
    found = host.facts.get("units")
    yield from host.unknown(found, "systemd's units", "failed_units", "unit_stopped", "automatic_upgrades")
    if not isinstance(found, Units):
        return
    each_failed = (
        host.finding(
            "failed_units",
            Status.WARNING,
            name,
            expected="none failed",
            actual="failed",
            remedy=f"`systemctl status {name}` and `journalctl -u {name}` there",
        )
        for name in found.failed
    )
    yield from host.all_of("failed_units", each_failed, expected="none failed", actual=f"none; systemd: {found.system}")
    stopped = (
        _stopped(host, unit)
        for name, unit in found.units.items()
        if name not in (*_ELSEWHERE, *_CLOCK) and unit.enabled == "enabled" and _is_down(unit)
    )
    yield from host.all_of("unit_stopped", stopped, expected="what is enabled runs", actual="so it is")
    running = (
        host.finding(
            "automatic_upgrades",
            Status.WARNING,
            name,
            expected="not running on a training node",
            actual=f"{unit.active}, {unit.enabled}",
            remedy=f"`systemctl disable --now {name}`, and upgrade the fleet together",
        )
        for name in _UNWANTED
        if (unit := found.units.get(name)) and unit.active == "active" and unit.load == "loaded"
        if host.wanted and host.wanted.hardware.gpus
    )
    yield from host.all_of("automatic_upgrades", running, expected="none", actual="none")


def _is_down(unit: Unit) -> bool:
    # a socket or a timer starts some of them when they are needed; one-shot units end
    return unit.load == "loaded" and unit.active in ("inactive", "failed") and unit.result not in ("", "success")


def _stopped(host: Subject, unit: Unit) -> Finding:
    return host.finding(
        "unit_stopped",
        Status.WARNING,
        unit.name,
        expected="active",
        actual=f"{unit.active} ({unit.sub}), ended with {unit.result}",
        remedy=f"`journalctl -u {unit.name}` there, then `systemctl restart {unit.name}`",
    )


def limits(host: Subject) -> Iterator[Finding]:
    """What a unit gets by default is what the tuning wants of a session; logind removes nobody's shared memory."""
    found = host.facts.get("unit_limits")
    yield from host.unknown(found, "systemd's default limits", "unit_limits", "remove_ipc")
    if not isinstance(found, UnitLimits):
        return
    wanted = host.wanted.tuning.limits if host.wanted else {}
    given = {"memlock": found.memlock, "nofile": found.nofile}
    for name, setting in sorted(wanted.items()):
        expected, actual = f"{setting.value} for units", given.get(name)
        remedy = f"set Default{_LIMITS[name]} in /etc/systemd/system.conf.d, then `systemctl daemon-reexec`"
        if actual is None:
            yield host.finding("unit_limits", Status.UNKNOWN, name, expected=expected, actual="not told", remedy=remedy)
        else:
            status = warned(_enough(name, actual, setting.value))
            yield host.finding("unit_limits", status, name, expected=expected, actual=actual, remedy=remedy)
    expected = "no: else /dev/shm/nccl-* goes when its user's last session ends"
    remedy = "set RemoveIPC=no in /etc/systemd/logind.conf.d, then `systemctl restart systemd-logind`"
    if found.remove_ipc is None:
        # a system without logind removes nothing
        yield host.finding("remove_ipc", Status.OK, expected=expected, actual="logind does not answer")
    else:
        actual = "yes" if found.remove_ipc else "no"
        yield host.finding("remove_ipc", warned(not found.remove_ipc), expected=expected, actual=actual, remedy=remedy)


def _enough(name: str, actual: str, wanted: str) -> bool:
    if actual == "infinity":
        return True
    number = whole(actual)
    if wanted == "unlimited" or number is None:
        return False
    # limits.conf counts memlock in KiB, systemd in bytes
    return number >= int(wanted) * (_KIB if name == "memlock" else 1)


CHECKS: tuple[Check, ...] = (failed, limits)
ABOUT = (
    About("failed_units", "systemd", "warning: a unit failed"),
    About("unit_stopped", "systemd", "warning: a unit that training depends on is enabled, and ended badly"),
    About("automatic_upgrades", "systemd, on hosts with GPUs", "warning: packages are replaced under running jobs"),
    About("unit_limits", "systemd's defaults", "warning: lower than the tuning's limits"),
    About("remove_ipc", "logind", "warning: it removes shared memory of users who logged out"),
)
