"""The kernel's evidence of a process's end: counters and limits of its control groups, and lines of the log."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..common import machine
from ..common.patterns import lazily

_TOOL_S = 5.0
_MOST_LINES = 12
_LINE_CHARS = 400
_VMSTAT = "/proc/vmstat"

_KILLED = lazily(r"Killed process (\d+)|oom-kill:.*\btask=[^,]*,pid=(\d+)")
_XID = lazily(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\)[^:]*: (\d+)(?:,\s*pid='?(\d+))?|"
    r"GPU ([0-9a-fA-F:.]+): GPU has fallen off the bus"
)
_FAULT = lazily(r"\[(\d+)\](?:: segfault at |:? (?:general protection|trap ))")
_WORTH = {"oom": _KILLED, "xid": _XID, "fault": _FAULT}
# a number above 7 has another facility than the kernel's: a program wrote the line
_BY_PROGRAM = lazily(r"^<(?:[89]|\d{2,3})>")
_TIME = lazily(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]\s*")
_PREFIX = lazily(r"^(?:<\d+>)?\[\s*\d+\.\d+\]\s*|^\[?\d{4}-\d\d-\d\dT\S+\s+")


class Line(NamedTuple):
    """A log line about a process's end; `kind` is oom, xid or fault, `at_s` its monotonic time if known."""

    kind: str
    text: str
    pid: Optional[int]
    at_s: Optional[float]


def counters(groups_text: str) -> List[str]:
    """Return the groups' files that count memory kills."""
    mounts = _mounts()
    files = []
    for _, controllers, path in (line.split(":", 2) for line in groups_text.splitlines()):
        version = "v2" if not controllers else "v1" if "memory" in controllers.split(",") else ""
        if version in mounts:
            files += _nearest(mounts[version], path, _COUNTERS[version])
    return files


# a file that counts the group alone comes first
_COUNTERS = {"v1": ("memory.oom_control",), "v2": ("memory.events.local", "memory.events")}


def _mounts() -> Dict[str, str]:
    mounts: Dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, place, kind, options, *_ = line.split()
            if kind == "cgroup2":
                mounts.setdefault("v2", place)
            elif kind == "cgroup" and "memory" in options.split(","):
                mounts.setdefault("v1", place)
    return mounts


def _nearest(mount: str, path: str, names: Sequence[str]) -> List[str]:
    group = os.path.normpath(mount + "/" + path.lstrip("/"))
    while group.startswith(mount):
        for name in names:
            if os.path.exists(os.path.join(group, name)):
                return [os.path.join(group, name)]
        group = os.path.dirname(group)
    return []


def is_of_machine(counter: str) -> bool:
    """Tell whether a counter counts for the whole machine: /proc/vmstat's, or a root group's."""
    return counter == _VMSTAT or os.path.dirname(counter) in _mounts().values()


def counts(paths: Sequence[str]) -> Dict[str, int]:
    """Return the counters' numbers; unreadable ones are left out."""
    by_counter = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    by_counter[path] = int(value)
    return by_counter


def limit_of(counter: str) -> str:
    """Return a text with the memory limit of a counter's group and the part that was used; "" if none is known."""
    group = os.path.dirname(counter)
    while group not in ("", "/"):
        limit = _first_number(group, ("memory.max", "memory.limit_in_bytes"))
        used = _first_number(group, ("memory.peak", "memory.max_usage_in_bytes", "memory.current"))
        if limit is not None and limit[1] < _UNLIMITED:
            usage = "" if used is None else f", and {used[0]} {used[1] >> 20} MiB"
            return f"the control group {group} has {limit[0]} {limit[1] >> 20} MiB{usage}"
        group = os.path.dirname(group)
    return ""


_UNLIMITED = 1 << 60  # version 1 writes a number if there is no limit


def _first_number(group: str, names: Sequence[str]) -> Optional[Tuple[str, int]]:
    for name in names:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(group, name), encoding="ascii") as file:
            return name, int(file.read())
    return None


def host_kills() -> Optional[int]:
    """Return how many processes the memory killer has ended since boot; None if the kernel does not count them."""
    return counts([_VMSTAT]).get(_VMSTAT)


def log_since(since_s: float) -> Tuple[List[Line], str]:
    """Return the log lines about ends since a moment (monotonic seconds), and why the log was unreadable (else "")."""
    text, problem = _log()
    lines = [line for line in map(_line, text.splitlines()) if line is not None]
    newer = [line for line in lines if line.at_s is not None and line.at_s >= since_s]
    return newer[-_MOST_LINES:], problem


def _line(text: str) -> Optional[Line]:
    if _BY_PROGRAM.match(text):
        return None
    for kind, pattern in _WORTH.items():
        match = pattern.search(text)
        if match:
            numbers = match.groups()[1:] if kind == "xid" else match.groups()
            pid = numbers[1] if kind == "xid" else next((number for number in numbers if number), None)
            time_s = _TIME.match(text)
            at_s = float(time_s.group(1)) if time_s else None
            return Line(kind, _PREFIX.sub("", text)[:_LINE_CHARS], int(pid) if pid else None, at_s)
    return None


_LOGS = (
    ("dmesg", "-r"),
    ("sudo", "-n", "dmesg", "-r"),
    ("journalctl", "-k", "-b", "-n", "2000", "-o", "short-monotonic", "--no-pager"),
)


def _log() -> Tuple[str, str]:
    """Return the kernel's log with times since boot, by the first way open to this login, and why there is none."""
    texts = (machine.printed(argv, _TOOL_S) for argv in _LOGS)
    text = next(filter(None, texts), "")
    return text, "" if text else "this login may not read it"


_GPUS = "/proc/driver/nvidia/gpus"


def gpu_address(visible: str, local_rank: int) -> str:
    """Return the PCI address (`0000:10:1c`) of the GPU with a rank's local number; "" if it is not known."""
    try:
        addresses = sorted(os.listdir(_GPUS))
    except OSError:
        return ""
    numbers = [int(word) for word in visible.split(",") if word.strip().isdigit()] or list(range(len(addresses)))
    if visible and len(numbers) != len(visible.split(",")):
        return ""  # by UUID
    if local_rank >= len(numbers) or numbers[local_rank] >= len(addresses):
        return ""
    return addresses[numbers[local_rank]].lower().partition(".")[0]
