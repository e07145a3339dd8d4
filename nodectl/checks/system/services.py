"""systemd's units, Slurm's word on the node, and the timer by which the node looks at its own health."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import (
    NO_SYSTEMD,
    NOT_SETTABLE,
    Check,
    Subject,
    Threshold,
    failed_unless,
    judges,
    judges_fact,
    provision,
    warning_unless,
)
from nodectl.checks.kernel.settings import most_files
from nodectl.facts.base import whole
from nodectl.facts.services import TIMER, HealthTimer, SlurmNode, TimeService, Unit, Units
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
_DAEMONS = ("nvidia-dcgm", "nvidia-dcgm-exporter", "slurmd", "munge")
_LIMITS = {"memlock": "LimitMEMLOCK", "nofile": "LimitNOFILE"}
_KIB = 1024


FAILED_UNITS = Check(
    "failed_units",
    fires="warning: a unit failed",
    expected="none failed",
    roles_of={
        "nodectl-dcgm-watches.service": ("dcgm",),
        "nvidia-dcgm-exporter.service": ("dcgm_exporter",),
        "nvidia-cdi-refresh.service": ("container_toolkit",),
    },
)
UNIT_STOPPED = Check(
    "unit_stopped",
    fires="warning: a unit that training depends on is enabled, and ended badly, or is a service that never ends",
    expected="active",
    roles_of={"nvidia-dcgm": ("dcgm",), "nvidia-dcgm-exporter": ("dcgm_exporter",)},
)
AUTOMATIC_UPGRADES = Check(
    "automatic_upgrades",
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
        running = any(clock_unit.active == "active" for name, clock_unit in units.units.items() if name in _CLOCK)
        service = host.fact("time_service", TimeService)
        return not (running or host.shares("clock") or (service and not service.own_clock))
    # a socket or a timer starts some of them when they are needed; one-shot units end
    return unit.name in _DAEMONS or unit.result not in ("", "success")


def _stopped(host: Subject, unit: Unit) -> Finding:
    actual = f"{unit.active} ({unit.sub}), enabled; it ended with {unit.result or 'no result'}"
    remedy = f"`journalctl -u {unit.name}` there, then `systemctl restart {unit.name}`"
    return host.finding(UNIT_STOPPED, Status.WARNING, unit.name, actual=actual, remedy=remedy)


UNIT_LIMITS = Check("unit_limits", fires="warning: lower than the tuning's limits", roles=("limits",))
REMOVE_IPC = Check(
    "remove_ipc",
    fires="warning: it removes shared memory of users who logged out",
    expected="no: else /dev/shm/nccl-* goes when its user's last session ends",
    remedy="set RemoveIPC=no in /etc/systemd/logind.conf.d, then `systemctl restart systemd-logind`",
    roles=("limits",),
)


@judges_fact(UnitLimits, UNIT_LIMITS, REMOVE_IPC, reads=("unit_limits", "sysctl"), unread="systemd's default limits")
def limits(host: Subject, limits: UnitLimits) -> Iterator[Finding]:
    """Compare a unit's defaults with the tuning's limits; logind must remove nobody's shared memory."""
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


# Whether Slurm would give this node work.

_DRAINED = {"DRAIN", "DRAINED", "DRAINING"}
_AWAY = {"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "INVALID_REG", "POWERED_DOWN"}


SLURM_STATE = Check(
    "slurm_state",
    fires="failed: down or not responding; warning: drained",
    expected="a state in which jobs start",
)


@judges_fact(
    SlurmNode,
    SLURM_STATE,
    reads=("slurm",),
    unread=SLURM_STATE.expected,
)
def state(host: Subject, node: SlurmNode) -> Iterator[Finding]:
    """Neither drained nor down; absent if the node is none of Slurm's."""
    states = set(node.states)
    away = states & _AWAY or not node.responding
    status = Status.FAILED if away else Status.WARNING if states & (_DRAINED | {"REBOOT"}) else Status.OK
    reason = f": {node.reason}" if node.reason else ""
    actual = f"{'+'.join(node.states)}{'' if node.responding else ', not responding'}{reason}"
    remedy = f"when it is mended: `scontrol update nodename={node.name} state=resume`"
    if not node.responding:
        remedy = f"look at slurmd there (`systemctl status slurmd`); {remedy}"
    yield host.finding(SLURM_STATE, status, actual=actual, remedy=remedy)


# Whether a node that should look at itself does: its timer runs, and the file that it writes is young.

AGE_LIMIT = Threshold("health_timer_age_s", 3600, "a look each five minutes; a file of an hour is nobody's any more")
HEALTH_TIMER = Check(
    "health_timer",
    fires="not active, or its file is old",
    expected="active",
    remedy=provision("health_timer"),
    thresholds=(AGE_LIMIT,),
    roles=("health_timer",),
)


@judges(HEALTH_TIMER, reads=("health_timer",), variables=("nodectl_health_timer",))
def health_timer(host: Subject) -> Iterator[Finding]:
    """Only where the inventory says that the host has one."""
    timer = host.facts.get("health_timer")
    if not host.variables.get("nodectl_health_timer"):
        return
    yield from host.lacks(HEALTH_TIMER, timer, TIMER)
    if not isinstance(timer, HealthTimer):
        return
    if not timer.systemd:
        yield host.finding(HEALTH_TIMER, Status.SKIPPED, TIMER, actual=NO_SYSTEMD)
        return
    state = timer.state or "not there"
    yield host.finding(HEALTH_TIMER, failed_unless(state == "active"), TIMER, actual=state)
    most = host.threshold(AGE_LIMIT)
    status = failed_unless(timer.age_s is not None and timer.age_s < most)
    expected, actual = f"younger than {most:g} s", "not there" if timer.age_s is None else f"{timer.age_s} s"
    remedy = "look at `journalctl -u nodectl-health.service`"
    yield host.finding(HEALTH_TIMER, status, timer.path, expected=expected, actual=actual, remedy=remedy)
