"""Whether systemd's units run as they should, and what it gives them: limits.conf does not reach units."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges, warning_unless
from nodectl.facts.base import whole
from nodectl.facts.unit_limits import UnitLimits
from nodectl.facts.units import Unit, Units
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 230

# a job must not meet a driver or a library that is replaced under it
_UNWANTED = ("unattended-upgrades",)
# judged where the hardware that they serve is
_ELSEWHERE = ("nvidia-persistenced", "nvidia-fabricmanager")
_CLOCK = ("chrony", "chronyd", "ntpd", "systemd-timesyncd")
_LIMITS = {"memlock": "LimitMEMLOCK", "nofile": "LimitNOFILE"}
_KIB = 1024


FAILED_UNITS = Check("failed_units", looks_at="systemd", fires="warning: a unit failed", expected="none failed")
UNIT_STOPPED = Check(
    "unit_stopped",
    looks_at="systemd",
    fires="warning: a unit that training depends on is enabled, and ended badly",
    expected="active",
)
AUTOMATIC_UPGRADES = Check(
    "automatic_upgrades",
    looks_at="systemd, on hosts with GPUs",
    fires="warning: packages are replaced under running jobs",
    expected="not running on a training node",
)


@judges(FAILED_UNITS, UNIT_STOPPED, AUTOMATIC_UPGRADES, reads=("units",))
def failed(host: Subject) -> Iterator[Finding]:
    """No unit failed; what is enabled runs; nothing upgrades packages by itself."""
    found = host.facts.get("units")
    yield from host.unknown(found, "systemd's units", FAILED_UNITS, UNIT_STOPPED, AUTOMATIC_UPGRADES)
    if not isinstance(found, Units):
        return
    each_failed = (
        host.finding(
            FAILED_UNITS,
            Status.WARNING,
            name,
            actual="failed",
            remedy=f"`systemctl status {name}` and `journalctl -u {name}` there",
        )
        for name in found.failed
    )
    yield from host.all_of(FAILED_UNITS, each_failed, actual=f"none; systemd: {found.system}")
    stopped = (
        _stopped(host, unit)
        for name, unit in found.units.items()
        if name not in (*_ELSEWHERE, *_CLOCK) and unit.enabled == "enabled" and _is_down(unit)
    )
    yield from host.all_of(UNIT_STOPPED, stopped, expected="what is enabled runs", actual="so it is")
    running = (
        host.finding(
            AUTOMATIC_UPGRADES,
            Status.WARNING,
            name,
            actual=f"{unit.active}, {unit.enabled}",
            remedy=f"`systemctl disable --now {name}`, and upgrade the fleet together",
        )
        for name in _UNWANTED
        if (unit := found.units.get(name)) and unit.active == "active" and unit.load == "loaded"
        if host.wanted and host.wanted.hardware.gpus
    )
    yield from host.all_of(AUTOMATIC_UPGRADES, running, expected="none", actual="none")


def _is_down(unit: Unit) -> bool:
    # a socket or a timer starts some of them when they are needed; one-shot units end
    return unit.load == "loaded" and unit.active in ("inactive", "failed") and unit.result not in ("", "success")


def _stopped(host: Subject, unit: Unit) -> Finding:
    return host.finding(
        UNIT_STOPPED,
        Status.WARNING,
        unit.name,
        actual=f"{unit.active} ({unit.sub}), ended with {unit.result}",
        remedy=f"`journalctl -u {unit.name}` there, then `systemctl restart {unit.name}`",
    )


UNIT_LIMITS = Check(
    "unit_limits", looks_at="systemd's defaults", fires="warning: lower than the tuning's limits", roles=("limits",)
)
REMOVE_IPC = Check(
    "remove_ipc",
    looks_at="logind",
    fires="warning: it removes shared memory of users who logged out",
    expected="no: else /dev/shm/nccl-* goes when its user's last session ends",
    remedy="set RemoveIPC=no in /etc/systemd/logind.conf.d, then `systemctl restart systemd-logind`",
    roles=("limits",),
)


@judges(UNIT_LIMITS, REMOVE_IPC, reads=("unit_limits",))
def limits(host: Subject) -> Iterator[Finding]:
    """What a unit gets by default is what the tuning wants of a session; logind removes nobody's shared memory."""
    found = host.facts.get("unit_limits")
    yield from host.unknown(found, "systemd's default limits", UNIT_LIMITS, REMOVE_IPC)
    if not isinstance(found, UnitLimits):
        return
    wanted = host.wanted.tuning.limits if host.wanted else {}
    given = {"memlock": found.memlock, "nofile": found.nofile}
    for name, setting in sorted(wanted.items()):
        expected, actual = f"{setting.value} for units", given.get(name)
        remedy = f"set Default{_LIMITS[name]} in /etc/systemd/system.conf.d, then `systemctl daemon-reexec`"
        if actual is None:
            yield host.finding(UNIT_LIMITS, Status.UNKNOWN, name, expected=expected, actual="not told", remedy=remedy)
        else:
            status = warning_unless(_enough(name, actual, setting.value))
            yield host.finding(UNIT_LIMITS, status, name, expected=expected, actual=actual, remedy=remedy)
    if found.remove_ipc is None:
        # a system without logind removes nothing
        yield host.finding(REMOVE_IPC, Status.OK, actual="logind does not answer")
    else:
        actual = "yes" if found.remove_ipc else "no"
        yield host.finding(REMOVE_IPC, warning_unless(not found.remove_ipc), actual=actual)


def _enough(name: str, actual: str, wanted: str) -> bool:
    if actual == "infinity":
        return True
    number = whole(actual)
    if wanted == "unlimited" or number is None:
        return False
    # limits.conf counts memlock in KiB, systemd in bytes
    return number >= int(wanted) * (_KIB if name == "memlock" else 1)
