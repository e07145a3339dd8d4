"""The host's load, and processes that hang in the kernel or are zombies."""

import math
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import counts, script, text_fact

# the load; then the hanging processes as ps shows them, and how many there are; mostly none hangs, and ps is dear
_SHOW = """\
read -r load </proc/loadavg && printf 'load %s\\n' "$load"
many=$(awk 'BEGIN {
  for (at = 1; at < ARGC; at++) {
    if ((getline row < ARGV[at]) > 0) many++
    close(ARGV[at])
    sub(/.*\\) /, "", row)
    if (row ~ /^[DZ]/) exit
  }
  print many
}' /proc/[0-9]*/stat)
[ -n "$many" ] && printf 'count %s\\n' "$many" ||
  ps -eo stat=,pid=,wchan:32=,etimes=,comm= | awk '/^[DZ]/ { print "process", $0 } END { print "count", NR }'
"""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that waits for a device or a file system that does not answer; `age_s` is since it was started."""

    pid: int
    name: str
    waits_in: str | None = None
    age_s: int | None = None


@dataclass(frozen=True, slots=True)
class Processes:
    """Load, and processes in states that only trouble keeps them in."""

    load_1: float
    load_5: float
    load_15: float
    uninterruptible: tuple[Process, ...]
    zombies: int
    count: int


def _parse(text: str) -> Processes:
    load: list[str] = []
    hanging: list[Process] = []
    zombies = count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        kind, _, rest = line.partition(" ")
        *words, name = rest.split(None, 3) or [""]
        # older recordings have no age
        age, _, after = name.partition(" ")
        age_s, name = (int(age), after.strip()) if age.isdigit() and after.strip() else (None, name)
        if kind == "load":
            load = [*words, name]
        elif kind == "count" and rest.isdigit():
            count = int(rest)
        elif kind == "process" and len(words) == 3 and words[1].isdigit():
            zombies += words[0].startswith("Z")
            if words[0].startswith("D"):
                hanging.append(Process(int(words[1]), name, None if words[2] == "-" else words[2], age_s))
        else:
            raise ParseError(f"processes: line {number}: {line[:200]!r}")
    try:
        one, five, fifteen = (float(word) for word in load[:3])
    except ValueError as error:
        raise ParseError(f"processes: {load!r} is no load") from error
    if not all(map(math.isfinite, (one, five, fifteen))):
        raise ParseError(f"processes: {load!r} is no load")
    return Processes(one, five, fifteen, tuple(hanging), zombies, count)


def _words(processes: Processes) -> str:
    stuck = len(processes.uninterruptible)
    return f"load {processes.load_1:.1f}, {stuck} stuck, {counts(zombie=processes.zombies)}"


FACT = text_fact("processes", script("processes", _SHOW), _parse, _words, row=870)
