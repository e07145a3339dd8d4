"""Which programs keep the clock, and how far off the one that runs says it is."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from nodectl.facts.base import script, text_fact

# process names, as the kernel cuts them at 15 characters
_PROGRAMS = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntp",
    "ptp4l": "linuxptp",
    "phc2sys": "linuxptp",
}
# Who lives in another than the first PID namespace shares a machine's clock. The first is told by the kernel's own
# process 2, and where processes of others are hidden by its inode (PROC_PID_INIT_INO), for which readlink is a process.
_SHOW = f"""\
first= second=
read -r first 2>/dev/null </proc/1/comm
read -r second 2>/dev/null </proc/2/comm
if [ -n "$first" ]; then
  [ "$second" = kthreadd ] && echo own || echo shared
else
  [ "$(readlink /proc/self/ns/pid)" = 'pid:[{0xEFFFFFFC}]' ] && echo own || echo shared
fi
found=' ' chrony= timesyncd= ntp=
for each in /proc/[0-9]*/comm; do
  read -r name 2>/dev/null <"$each" || continue
  case $name in {" | ".join(_PROGRAMS)}) found="$found$name " ;; esac
done
for name in {" ".join(sorted(_PROGRAMS))}; do
  case $found in *" $name "*) printf 'service %s\\n' "$name" ;; esac
done
! command -v chronyc >/dev/null || chrony=$(chronyc -n -c tracking 2>/dev/null)
[ ! -d /run/systemd/system ] || timesyncd=$(timedatectl timesync-status 2>/dev/null | sed -n 's/^ *Offset: //p')
! command -v ntpq >/dev/null || ntp=$(ntpq -c rv 2>/dev/null | tr '\\n' ' ')
printf 'chrony %s\\ntimesyncd %s\\nntp %s\\n' "$chrony" "$timesyncd" "$ntp"
"""
_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class TimeService:
    """The time services that run, and how many seconds off they say the clock is, None where none says.

    `own_clock` is false in a container, which has its machine's clock.
    """

    services: tuple[str, ...]
    offset_s: float | None
    own_clock: bool


def _chrony(text: str) -> float | None:
    fields = text.split(",")
    return None if len(fields) < 14 or fields[13] == "Not synchronised" else float(fields[4])


def _timesyncd(text: str) -> float | None:
    match = re.fullmatch(r"([+-]?[\d.]+)(\S+)", text)
    return float(match[1]) * _UNITS_S[match[2]] if match and match[2] in _UNITS_S else None


def _ntp(text: str) -> float | None:
    match = re.search(r"\boffset=([+-]?[\d.]+)", text)
    return float(match[1]) / 1000 if match else None


_READERS: dict[str, tuple[str, Callable[[str], float | None]]] = {
    "chrony": ("chrony", _chrony),
    "systemd-timesyncd": ("timesyncd", _timesyncd),
    "ntp": ("ntp", _ntp),
}


def _parse(text: str) -> TimeService:
    first, *lines = text.splitlines()
    services = sorted({_PROGRAMS[line.split()[1]] for line in lines if line.startswith("service ")})
    answers = dict(line.split(" ", 1) for line in lines if " " in line and not line.startswith("service "))
    readers = [_READERS[name] for name in services if name in _READERS]
    offsets = (read(answers.get(program, "").strip()) for program, read in readers)
    return TimeService(
        tuple(services), next((offset_s for offset_s in offsets if offset_s is not None), None), first == "own"
    )


def _words(service: TimeService) -> str:
    return ", ".join(service.services) or "none"


FACT = text_fact("time_service", script("time-service", _SHOW, waits=True), _parse, _words, row=831, occasion="live")
