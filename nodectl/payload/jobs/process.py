"""What /proc says about a process, and whether a recorded process is still that one."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Set


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used here; `exit_code` is a wait status, meaningful for a zombie."""

    state: str
    ppid: int
    start_ticks: int
    exit_code: int
    cpu_ticks: int = 0

    @property
    def alive(self) -> bool:
        """Tell whether the process is neither a zombie nor dead."""
        return self.state not in "ZX"


def read_stat(pid: int) -> Optional[Stat]:
    """Return None if there is no such process."""
    text = read_text(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[1]), int(fields[19]), int(fields[49]), int(fields[11]) + int(fields[12]))


def is_alive(pid: int, start_ticks: int) -> bool:
    """Tell whether the process that was recorded with this pid and start time still runs: a reused pid is not it."""
    stat = read_stat(pid) if pid > 0 else None
    return stat is not None and stat.alive and stat.start_ticks == start_ticks


def is_stopped(pid: int) -> bool:
    """Tell whether a signal, or a debugger, has stopped the process."""
    stat = read_stat(pid)
    return stat is not None and stat.state in "tT"


def all_pids() -> Iterator[int]:
    """Return the pids that /proc shows."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def descendants(roots: Set[int]) -> Set[int]:
    """Return all living processes below `roots`, without these; pid 0 among the roots is ignored."""
    children: Dict[int, List[int]] = {}
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is not None and stat.alive:
            children.setdefault(stat.ppid, []).append(pid)
    below: Set[int] = set()
    stack = list(roots - {0})
    while stack:
        for child in children.get(stack.pop(), ()):
            if child not in below:
                below.add(child)
                stack.append(child)
    return below - roots


def below(root: int, leaves: Set[int]) -> Set[int]:
    """Return the processes below `root`, without those below `leaves`; fast where the kernel lists children."""
    if not _SHOWS_CHILDREN:
        return descendants({root}) - descendants(leaves)
    pids: Set[int] = set()
    stack = [root]
    while stack:
        for child in _children(stack.pop()) - pids:
            pids.add(child)
            if child not in leaves:
                stack.append(child)
    return pids


_SHOWS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # a kernel may be built without it


def _children(pid: int) -> Set[int]:
    children: Set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            children.update(map(int, read_text(f"/proc/{pid}/task/{thread}/children").split()))
    return children


def read_text(path: str) -> str:
    """Return the text of a file, as of /proc; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_environ(pid: int) -> Dict[str, str]:
    """Return the environment that a process was started with; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def read_cmdline(pid: int) -> List[str]:
    """Return a process's command line as a list; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def spawn_payload(program: str, *arguments: str, stdin: bytes) -> int:
    """Start a program of the payload by its dotted name, in this environment; return its pid.

    `stdin` is at most what a pipe holds. What must not be seen by other logins belongs there, not among `arguments`.
    """
    run = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "run.py")
    argv = [sys.executable, "-S", run, program, *arguments]
    reader, writer = os.pipe()
    try:
        os.write(writer, stdin)
        actions = [(os.POSIX_SPAWN_DUP2, reader, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        return os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsigdef=[signal.SIGTERM])
    finally:
        os.close(reader)
        os.close(writer)


def login_of(pid: int) -> str:
    """Return the login of a process (its uid if that has no name); "" if there is no such process."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    import pwd  # only a host that others use needs it

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def exit_status(wait_status: int) -> int:
    """Return the exit status for a wait status as a shell has it: 128 plus the number for a death by signal."""
    number = wait_status & 0x7F
    return 128 + number if number else wait_status >> 8


def send(pid: int, number: int) -> None:
    """Send a signal; a missing process is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
