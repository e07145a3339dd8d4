"""Whether systemd's units run as they should, and what it gives them: limits.conf does not reach units."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, judges_fact, warning_unless
from nodectl.checks.kernel.settings import most_files
from nodectl.facts.base import whole
from nodectl.facts.services import TimeService, Unit, Units
from nodectl.facts.settings import UnitLimits
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 230

# a job must not meet a driver or a library that is replaced under it
_UNWANTED = ("unattended-upgrades",)
# judged where the hardware that they serve is
_ELSEWHERE = ("nvidia-persistenced", "nvidia-fabricmanager")
_CLOCK = ("chrony", "chronyd", "ntpd", "systemd-timesyncd")
# they run for ever once they are enabled; sockets, timers and conditions start and end others
_DAEMONS = ("nvidia-dcgm", "slurmd", "munge")
_LIMITS = {"memlock": "LimitMEMLOCK", "nofile": "LimitNOFILE"}
_KIB = 1024


FAILED_UNITS = Check("failed_units", looks_at="systemd", fires="warning: a unit failed", expected="none failed")
UNIT_STOPPED = Check(
    "unit_stopped",
    looks_at="systemd",
    fires="warning: a unit that training depends on is enabled, and ended badly, or is a service that never ends",
    expected="active",
)
AUTOMATIC_UPGRADES = Check(
    "automatic_upgrades",
    looks_at="systemd, on hosts with GPUs",
    fires="warning: packages are replaced under running jobs",
    expected="not running on a training node",
)


@judges_fact(
    Units,
    *(FAILED_UNITS, UNIT_STOPPED, AUTOMATIC_UPGRADES),
    reads=("units", "lab", "time_service"),
    unread="systemd's units",
)
def failed(host: Subject, units: Units) -> Iterator[Finding]:
    """No unit failed; what is enabled runs; nothing upgrades packages by itself."""
    failures = (_failed(host, name) for name in units.failed)
    yield from host.all_of(FAILED_UNITS, failures, actual=f"none; systemd: {units.system}")
    stopped = (
        _stopped(host, unit)
        for name, unit in units.units.items()
        if name not in _ELSEWHERE and unit.enabled == "enabled" and _is_down(host, units, unit)
    )
    yield from host.all_of(UNIT_STOPPED, stopped, expected="every enabled unit runs", actual="every enabled unit runs")
    running = (
        _upgrades(host, unit)
        for name in _UNWANTED
        if (unit := units.units.get(name)) and unit.active == "active" and unit.load == "loaded" and host.gpus
    )
    yield from host.all_of(AUTOMATIC_UPGRADES, running, expected="none", actual="none")


def _failed(host: Subject, name: str) -> Finding:
    remedy = f"`systemctl status {name}` and `journalctl -u {name}` there"
    return host.finding(FAILED_UNITS, Status.WARNING, name, actual="failed", remedy=remedy)


def _upgrades(host: Subject, unit: Unit) -> Finding:
    actual, remedy = (
        f"{unit.active}, {unit.enabled}",
        f"`systemctl disable --now {unit.name}`, and upgrade the fleet together",
    )
    return host.finding(AUTOMATIC_UPGRADES, Status.WARNING, unit.name, actual=actual, remedy=remedy)


def _is_down(host: Subject, units: Units, unit: Unit) -> bool:
    if unit.load != "loaded" or unit.active not in ("inactive", "failed"):
        return False
    if unit.name in _CLOCK:
        # in a container it does not start, and where several are installed one is enough
        running = any(each.active == "active" for name, each in units.units.items() if name in _CLOCK)
        service = host.fact("time_service", TimeService)
        return not (running or host.shares("clock") or (service and not service.own_clock))
    # a socket or a timer starts some of them when they are needed; one-shot units end
    return unit.name in _DAEMONS or unit.result not in ("", "success")


def _stopped(host: Subject, unit: Unit) -> Finding:
    actual = f"{unit.active} ({unit.sub}), enabled; it ended with {unit.result or 'no result'}"
    remedy = f"`journalctl -u {unit.name}` there, then `systemctl restart {unit.name}`"
    return host.finding(UNIT_STOPPED, Status.WARNING, unit.name, actual=actual, remedy=remedy)


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


@judges_fact(UnitLimits, UNIT_LIMITS, REMOVE_IPC, reads=("unit_limits", "sysctl"), unread="systemd's default limits")
def limits(host: Subject, limits: UnitLimits) -> Iterator[Finding]:
    """What a unit gets by default is what the tuning wants of a session; logind removes nobody's shared memory."""
    wanted = host.wanted.tuning.limits if host.wanted else {}
    given = {"memlock": limits.memlock, "nofile": limits.nofile}
    for name, setting in sorted(wanted.items()):
        expected, actual = f"{setting.value} for units", given.get(name)
        remedy = f"set Default{_LIMITS[name]} in /etc/systemd/system.conf.d, then `systemctl daemon-reexec`"
        status = Status.UNKNOWN if actual is None else warning_unless(_enough(name, actual, setting.value))
        most = most_files(host) if name == "nofile" else None
        if status is Status.WARNING and most is not None and not _enough(name, str(most), setting.value):
            status, actual = Status.SKIPPED, f"{NOT_SETTABLE}: its fs.nr_open is {most}"
        yield host.finding(UNIT_LIMITS, status, name, expected=expected, actual=actual or "not told", remedy=remedy)
    # a system without logind removes nothing
    actual = {None: "logind does not answer", True: "yes", False: "no"}[limits.remove_ipc]
    yield host.finding(REMOVE_IPC, warning_unless(not limits.remove_ipc), actual=actual)


def _enough(name: str, actual: str, wanted: str) -> bool:
    if actual == "infinity":
        return True
    number = whole(actual)
    if wanted == "unlimited" or number is None:
        return False
    # limits.conf counts memlock in KiB, systemd in bytes
    return number >= int(wanted) * (_KIB if name == "memlock" else 1)
