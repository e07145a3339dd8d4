"""Services: systemd's units, the clock and what keeps it right, the health timer, Slurm."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import (
    AbsentError,
    Fact,
    UnknownError,
    entry,
    listed,
    output,
    parse,
    script,
    shell,
    text_fact,
    variable,
    whole,
)
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

NO_SYSTEMD = "no systemd runs there"
# what training depends on, or what comes in its way
UNITS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nvidia-imex", "openibd", "slurmd", "munge"),
    *("chrony", "chronyd", "ntpd", "systemd-timesyncd", "ssh", "sshd", "irqbalance", "tuned", "docker", "containerd"),
    # last, as in older recordings: where it lacks the output is cut
    *("nvidia-dcgm-exporter", "unattended-upgrades"),
)
_SERVICE = ".service"
_PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,Result"
_UNITS_SHOW = f"""\
[ -d /run/systemd/system ] || exit 3
printf 'system %s\\n' "$(systemctl is-system-running)"
systemctl list-units --state=failed --plain --no-legend --no-pager | while read -r unit _; do
  printf 'failed %s\\n' "$unit"
done
systemctl show --no-pager --property={_PROPERTIES} -- "$@"
"""
UNITS_COMMAND = Command(
    "units", ("sh", "-c", _UNITS_SHOW, "units", *(f"{name}{_SERVICE}" for name in UNITS)), hardware=True, waits=True
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit: load, active, sub and enabled state, and how it last ended."""

    name: str
    load: str
    active: str
    sub: str
    enabled: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Units:
    """systemd's units that training depends on, and all that failed; `system` is systemd's word on the whole."""

    system: str
    units: Mapping[str, Unit]
    failed: tuple[str, ...]


def _read_units(recording: Recording) -> Units:
    units = parse(_parse_units, output(recording, UNITS_COMMAND.key, NO_SYSTEMD))
    last = "".join(entry(recording, UNITS_COMMAND.key).argv[-1:])
    if last.endswith(_SERVICE) and last.removesuffix(_SERVICE) not in units.units:
        raise ParseError(f"units: the output is cut: it lacks {last}, which was asked for last")
    return units


def _parse_units(text: str) -> Units:
    system, failed, blocks = "", [], []
    block: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        word, _, rest = line.partition(" ")
        name, equals, value = line.partition("=")
        if word == "system":
            system = rest
        elif word == "failed":
            failed.append(rest)
        elif not line.strip():
            blocks.append(block)
            block = {}
        elif equals:
            block[name] = value
        else:
            raise ParseError(f"units: line {number}: {line[:200]!r}")
    printed = [each for each in [*blocks, block] if each]
    needed = {"Id", "LoadState", "ActiveState"}.union(*printed[:-1])
    if not printed or needed - printed[-1].keys():
        raise ParseError("units: the output is cut: its last unit lacks what systemctl was asked for")
    states = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result")
    units = [Unit(each["Id"].removesuffix(_SERVICE), *(each.get(key, "") for key in states)) for each in printed]
    return Units(system, {unit.name: unit for unit in units}, tuple(failed))


def _units_words(units: Units) -> str:
    active = {name for name, unit in units.units.items() if unit.active == "active"}
    return f"{units.system}; failed: {listed(set(units.failed))}; active: {listed(active)}"


UNITS_FACT = Fact("units", (UNITS_COMMAND,), _read_units, _units_words, row=850)


# below this the offset that a round trip can show is its own delay
_CLOSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Clock:
    """The host's clock against ours: host's minus ours; the true offset is within `error_s` above `offset_s`."""

    offset_s: float
    error_s: float


def _read_time(recording: Recording) -> Clock:
    if recording.clock_offset_s is None or recording.clock_error_s is None:
        raise UnknownError("nobody compared the clocks")
    return Clock(round(recording.clock_offset_s, 4), round(recording.clock_error_s, 4))


# every round trip compares the clocks: it needs no command
TIME_FACT = Fact(
    "time",
    (),
    _read_time,
    lambda clock: f"{clock.offset_s:+.1f} s off ours" if abs(clock.offset_s) >= _CLOSE_S else "within 0.1 s of ours",
    row=820,
)


@dataclass(frozen=True, slots=True)
class ClockSync:
    """The clock's daemon: whether one keeps the clock right, in the words of the program that was asked."""

    synchronised: bool
    told: str


def _read_clock_sync(recording: Recording) -> ClockSync:
    done = entry(recording, "clock-sync")
    if done.exit_status != 0:
        raise UnknownError("neither chronyc nor timedatectl answers")
    daemon, _, state = done.stdout.strip().partition(" ")
    return ClockSync((daemon, state) in (("chrony", "Normal"), ("systemd", "yes")), f"{daemon}: {state}")


CLOCK_SYNC_FACT = Fact(
    "clock_sync",
    (script("clock-sync", waits=True),),
    _read_clock_sync,
    lambda sync: sync.told,
    row=830,
)


# process names, as the kernel cuts them at 15 characters
_PROGRAMS = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntp",
    "ptp4l": "linuxptp",
    "phc2sys": "linuxptp",
}


@dataclass(frozen=True, slots=True)
class TimeService:
    """The time services that run; `own_clock` is false in a container, which has its machine's clock."""

    services: tuple[str, ...]
    own_clock: bool


def _parse_time_service(text: str) -> TimeService:
    first, *lines = text.splitlines()
    services = {_PROGRAMS[line.removeprefix("service ")] for line in lines if line.startswith("service ")}
    return TimeService(tuple(sorted(services)), first == "own")


TIME_SERVICE_FACT = text_fact(
    "time_service",
    script(
        "time-service",
        shell("time-service", cases=" | ".join(_PROGRAMS), names=" ".join(sorted(_PROGRAMS))),
        waits=True,
    ),
    _parse_time_service,
    lambda service: ", ".join(service.services) or "none",
    row=831,
    occasion="live",
)


TIMER = "nodectl-health.timer"
_FOLDER = "/var/lib/node_exporter/textfile_collector"
_HEALTH_TIMER_SHOW = f"""\
[ -d /run/systemd/system ] || {{ echo none; exit 0; }}
[ -e /etc/systemd/system/{TIMER} ] || exit 3
echo systemd
systemctl is-active {TIMER} 2>/dev/null || echo
[ ! -e "$1" ] || echo "$(($(date +%s) - $(stat -c %Y "$1")))"
"""


@dataclass(frozen=True, slots=True)
class HealthTimer:
    """The timer by which a node looks at its own health, and how old its file is.

    `state` is systemctl's word, empty if no systemd runs; `age_s` of the file, None if there is none.
    """

    state: str
    path: str
    age_s: int | None
    systemd: bool


def _commands(host: Host) -> tuple[Command, ...]:
    path = f"{variable(host, 'health_timer_folder', _FOLDER)}/nodectl.prom"
    return (Command("health-timer", ("sh", "-c", _HEALTH_TIMER_SHOW, "sh", path), waits=True),)


def _read_health_timer(recording: Recording) -> HealthTimer:
    text = output(recording, "health-timer", f"no {TIMER} there")
    lines = [*text.splitlines(), "", "", ""]
    path = recording.entries["health-timer"].argv[-1]
    return HealthTimer(lines[1].strip(), path, whole(lines[2].strip() or None), lines[0] == "systemd")


HEALTH_TIMER_FACT = Fact(
    "health_timer",
    _commands,
    _read_health_timer,
    lambda timer: f"{timer.state}, file {timer.age_s} s old",
    row=832,
    occasion="live",
)


_ABSENT = "a client of Slurm is installed, but no slurmd runs here, and no configuration of Slurm names this host"
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z]+)=(.*?)(?=\s+[A-Za-z]+=|\s*$)")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """The node in the words of Slurm's controller: states without marks such as `*`, reason, resources."""

    name: str
    states: tuple[str, ...]
    responding: bool
    reason: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gres: str | None = None
    version: str | None = None


def _read_slurm(recording: Recording) -> SlurmNode:
    done = entry(recording, "slurm-node")
    answer = (done.stdout + done.stderr).strip()
    if done.exit_status == 1 and "not found" in answer:
        raise AbsentError(f"Slurm's controller does not know this node: {answer.splitlines()[0]}")
    text = output(recording, "slurm-node", _ABSENT)
    fields = {match[1]: match[2].strip() for match in _FIELD.finditer(" ".join(text.split()))}
    if "NodeName" not in fields or "State" not in fields:
        raise ParseError(f"scontrol: {text[:200]!r} names no node with a state")
    parts = fields["State"].split("+")
    states = tuple(part.rstrip("*~#!%$@^-") for part in parts)
    return SlurmNode(
        name=fields["NodeName"],
        states=states,
        responding=not any("*" in part for part in parts) and "NOT_RESPONDING" not in states,
        reason=fields.get("Reason") or None,
        cpus=whole(fields.get("CPUTot")),
        memory_mib=whole(fields.get("RealMemory")),
        gres=None if fields.get("Gres") in (None, "(null)") else fields["Gres"],
        version=fields.get("Version") or None,
    )


SLURM_FACT = Fact(
    "slurm",
    (script("slurm-node", hardware=True, waits=True),),
    _read_slurm,
    lambda node: "+".join(node.states) + (f", {node.reason}" if node.reason else ""),
    row=860,
)
