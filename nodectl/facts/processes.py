"""Load, processes that hang, and ports on which something listens."""

import math

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output
from nodectl.model.recording import Command, Recording
from nodectl.model.system import Listening, Process, Processes

# the load; then the hanging processes as ps shows them, and how many there are in all
_SHOW = """\
read -r load </proc/loadavg && printf 'load %s\\n' "$load"
ps -eo stat=,pid=,wchan:32=,comm= | awk '/^[DZ]/ { print "process", $0 } END { print "count", NR }'
"""


def _read(recording: Recording) -> Processes:
    load: list[str] = []
    hanging: list[Process] = []
    zombies = count = 0
    for number, line in enumerate(output(recording, "processes").splitlines(), start=1):
        kind, _, rest = line.partition(" ")
        words = rest.split(None, 3)
        if kind == "load":
            load = words
        elif kind == "count" and rest.isdigit():
            count = int(rest)
        elif kind == "process" and len(words) == 4 and words[1].isdigit():
            zombies += words[0].startswith("Z")
            if words[0].startswith("D"):
                hanging.append(Process(int(words[1]), words[3], None if words[2] == "-" else words[2]))
        else:
            raise ParseError(f"processes: line {number}: {line[:200]!r}")
    try:
        one, five, fifteen = (float(word) for word in load[:3])
    except ValueError as error:
        raise ParseError(f"processes: {load!r} is no load") from error
    if not all(map(math.isfinite, (one, five, fifteen))):
        raise ParseError(f"processes: {load!r} is no load")
    return Processes(one, five, fifteen, tuple(hanging), zombies, count)


def _listening(recording: Recording) -> Listening:
    ports: dict[int, list[str]] = {}
    for number, line in enumerate(output(recording, "listening").splitlines(), start=1):
        words = line.split()
        address, _, port = words[3].rpartition(":") if len(words) >= 5 else ("", "", "")
        if not port.isdigit():
            raise ParseError(f"ss: line {number}: {line[:200]!r}")
        ports.setdefault(int(port), []).append(address)
    return Listening({port: tuple(sorted(set(ports[port]))) for port in sorted(ports)})


FACT = Fact("processes", lambda venv: (Command("processes", ("sh", "-c", _SHOW)),), _read)
LISTENING = Fact("listening", lambda venv: (Command("listening", ("ss", "-ltnH")),), _listening)
