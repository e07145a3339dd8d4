"""The look itself: whether the host is one of a lab, which tools hung, how the site's own checks ended."""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from nodectl.common import bounded_json
from nodectl.common.counting import counted
from nodectl.common.node_paths import STATE_FOLDER
from nodectl.errors import ParseError
from nodectl.facts.base import DEADLINE, NO_TIME, AbsentError, Fact, UnknownError, entry, is_flood, tool
from nodectl.model.recording import DEADLINE_S, SITE, Command, Entry, Recording

_MARK = "/etc/nodectl-lab"


@dataclass(frozen=True, slots=True)
class Lab:
    """A host of a lab: what it shares with the machine, and the recording that answers for its hardware."""

    lab: str
    shared: tuple[str, ...]
    recorded: str = ""


def _read_lab(recording: Recording) -> Lab:
    done = entry(recording, "lab", in_part=True)
    if done.exit_status != 0:
        raise AbsentError("not a lab host")
    try:
        mark = bounded_json.loads(done.stdout)
        return Lab(str(mark["lab"]), tuple(map(str, mark["shared"])), str(mark.get("recorded") or ""))
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"{_MARK}: {done.stdout[:80]!r}: {error!r}") from error


def _lab_words(lab: Lab) -> str:
    recorded = f"; hardware recorded: {lab.recorded}" if lab.recorded else ""
    return f"{lab.lab}; the machine's, shared by all its hosts: {', '.join(lab.shared)}{recorded}"


LAB_FACT = Fact("lab", (Command("lab", ("cat", _MARK)),), _read_lab, _lab_words, row=1000, quiet=True)


_NOT_ASKED = "not asked: "


@dataclass(frozen=True, slots=True)
class Hung:
    """The tools that did not end in time or printed without end (`floods`), and the commands not run for it.

    `tools`: each with how long it was waited for and the keys of its commands; `no_time`: keys for want of time.
    """

    tools: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    no_time: tuple[str, ...] = ()
    floods: frozenset[str] = frozenset()


def _read_hung(recording: Recording) -> Hung:
    if not recording.entries:
        raise UnknownError("no command is in the recording")
    # a site's own checks say so under their own ids
    ours = [done for done in recording.entries.values() if not done.key.startswith(SITE)]
    late = [done for done in ours if done.exit_status == DEADLINE or is_flood(done)]
    if not late:
        raise AbsentError("all ended in time")
    no_time = tuple(done.key for done in late if NO_TIME in done.stderr)
    by_tool: dict[str, list[Entry]] = {}
    for done in late:
        if done.key not in no_time:
            by_tool.setdefault(tool(done), []).append(done)
    floods = frozenset(name for name, entries in by_tool.items() if all(is_flood(done) for done in entries))
    tools = []
    for name, entries in by_tool.items():
        waited_s = max((done.duration_s for done in entries if _NOT_ASKED not in done.stderr), default=0.0)
        tools.append((name, waited_s, tuple(done.key for done in entries)))
    return Hung(tuple(tools), no_time, floods)


def _hung_words(hung: Hung) -> str:
    left = [f"{NO_TIME} for {len(hung.no_time)} commands"] if hung.no_time else []
    return "; ".join([*(name for name, *_ in hung.tools), *left])


# no command of its own: it is read from those of all others
HUNG_FACT = Fact("hung", (), _read_hung, _hung_words, row=990, quiet=True)


# the folder of the login on a node, private to it, in which each file is called by its hash
FOLDER = f"{STATE_FOLDER}/checks"
OUT_KIB, ERR_KIB = 64, 4
_KEY = re.compile(rf"{SITE}[a-z0-9_]+")
_ABSENT = 93
_SAYS = "nodectl-check: "
_NOT_HERE, _CUT = f"{_SAYS}not here", f"{_SAYS}printed too much"
# a command's own shell says 128 + N of what signal N has ended
_SIGNALS = 128
_MEANS = {
    124: "as of what did not end in time",
    126: "it cannot be executed there",
    127: "its interpreter, or what it runs, is not there",
}
# the collector counts in hundredths
_ROUNDED_S = 0.1

# Standard output goes by 5 to a reader that keeps OUT_KIB, standard error to one that keeps ERR_KIB and reads on; the
# exit status comes by 4. `timeout` makes a process group, which is ended as a whole, whoever has started what.
_RUN = f"""\
f="{FOLDER}/$1"
[ -f "$f" ] || {{ echo '{_NOT_HERE}' >&2; exit {_ABSENT}; }}
export NODECTL_HOST="$3" NODECTL_CHECK="$4" NODECTL_TIMEOUT_S="$2"
exec 3>&1
ended=$({{ {{ {{
    timeout -k 2 "$2" "$f" 3>&- 4>&- 5>&- &
    group=$!
    wait "$group"
    ended=$?
    kill -KILL "-$group" 2>/dev/null
    echo "$ended" >&4
}} 2>&1 >&5 | {{ head -c {ERR_KIB * 1024} >&2; cat >/dev/null; }}; }} 5>&1 | {{
    head -c {OUT_KIB * 1024}
    [ "$(head -c 1 | wc -c)" -eq 0 ] || echo '{_CUT}' >&2
}} >&3; }} 4>&1)
exit "${{ended:-{_ABSENT}}}"
"""


@dataclass(frozen=True, slots=True)
class SiteRun:
    """One check's end: its exit status, output, last line of complaint, and why it did not answer; empty if it did."""

    exit_status: int
    text: str
    complaint: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """How the site's own checks ended; what their answers say is judged by `checks/site.py`."""

    runs: Mapping[str, SiteRun] = field(hash=False)


def site_command(name: str, program: bytes, *, host: str, limit_s: int) -> Command:
    """Return what runs the program as the check `name` on the host of that name."""
    argv = ("sh", "-c", _RUN, "sh", _digest(program), str(limit_s), host, name)
    # beyond the check's own limit: what holds its output and is out of reach
    return Command(name, argv, deadline_s=limit_s + DEADLINE_S, program=program)


@lru_cache(maxsize=128)  # the same for every host
def _digest(program: bytes) -> str:
    return hashlib.sha256(program).hexdigest()[:32]


def program_of(command: Command) -> str:
    """Return the name of its program in FOLDER."""
    return command.argv[4]


def lacks_program(entry: Entry | None) -> bool:
    """Return whether the host does not have the program yet, or no more."""
    return entry is not None and entry.exit_status == _ABSENT and _NOT_HERE in entry.stderr


def not_sent(reason: str) -> str:
    """Return what stands on standard error if the program could not be sent."""
    return f"{_NOT_HERE}: {reason}"


def _read_site(recording: Recording) -> Site:
    runs = {key: _run(entry) for key, entry in sorted(recording.entries.items()) if _KEY.fullmatch(key)}
    if not recording.entries:
        raise UnknownError("no command is in the recording")
    if not runs:
        raise AbsentError("none was asked")
    return Site(runs)


def _run(entry: Entry) -> SiteRun:
    stderr_lines = [line for line in entry.stderr.splitlines() if line.strip() and not line.startswith(_SAYS)]
    complaint = stderr_lines[-1].strip() if stderr_lines else ""
    status = -1 if entry.exit_status is None else entry.exit_status
    return SiteRun(status, entry.stdout, complaint, _why(entry, complaint))


def _why(entry: Entry, complaint: str) -> str:
    status, limit = entry.exit_status, entry.argv[5] if len(entry.argv) > 5 else ""
    limit_s = int(limit) if re.fullmatch(r"[0-9]{1,4}", limit) else 0
    if lacks_program(entry):
        reason = entry.stderr.partition(f"{_NOT_HERE}: ")[2].strip()
        return f"it could not be sent to the host{': ' if reason else ''}{reason}"
    if _CUT in entry.stderr:
        return f"it printed more than {OUT_KIB} KiB"
    if status == DEADLINE and NO_TIME in entry.stderr:
        return "not run: the host's other commands took all the time"
    # of what does not mind TERM: 137
    if limit_s and status in (DEADLINE, _SIGNALS + signal.SIGKILL) and entry.duration_s >= limit_s - _ROUNDED_S:
        return f"it did not end within {limit_s} s"
    if status is None or entry.cut:
        return "its output was cut"
    if 0 <= status <= 3:
        return ""
    text = f"exit status {status}"
    with suppress(ValueError):
        text = f"signal {status - _SIGNALS} ({signal.Signals(status - _SIGNALS).name}) ended it"
    meaning = f", {_MEANS[status]}" if status in _MEANS else ""
    return f"{text}{meaning}{': ' if complaint else ''}{complaint}"


# its commands are those of the folder next to the inventory, and a recording brings its own
SITE_FACT = Fact("site", (), _read_site, lambda site: counted(len(site.runs), "check"), row=995, quiet=True)
