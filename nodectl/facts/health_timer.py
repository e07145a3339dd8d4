"""The timer by which a node looks at its own health, and how old its file is."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, output, variable, whole
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

TIMER = "nodectl-health.timer"
_FOLDER = "/var/lib/node_exporter/textfile_collector"
_SHOW = f"""\
[ -d /run/systemd/system ] || {{ echo none; exit 0; }}
[ -e /etc/systemd/system/{TIMER} ] || exit 3
echo systemd
systemctl is-active {TIMER} 2>/dev/null || echo
[ ! -e "$1" ] || echo "$(($(date +%s) - $(stat -c %Y "$1")))"
"""


@dataclass(frozen=True, slots=True)
class HealthTimer:
    """`state` as systemctl says it, empty where no systemd runs; `age_s` of the file, None where there is none."""

    state: str
    path: str
    age_s: int | None
    systemd: bool


def _commands(host: Host) -> tuple[Command, ...]:
    path = f"{variable(host, 'health_timer_folder', _FOLDER)}/nodectl.prom"
    return (Command("health-timer", ("sh", "-c", _SHOW, "sh", path), waits=True),)


def _read(recording: Recording) -> HealthTimer:
    text = output(recording, "health-timer", f"no {TIMER} there")
    lines = [*text.splitlines(), "", "", ""]
    path = recording.entries["health-timer"].argv[-1]
    return HealthTimer(lines[1].strip(), path, whole(lines[2].strip() or None), lines[0] == "systemd")


FACT = Fact(
    "health_timer", _commands, _read, lambda timer: f"{timer.state}, file {timer.age_s} s old", row=832, occasion="live"
)
