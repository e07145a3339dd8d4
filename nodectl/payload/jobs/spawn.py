"""Starts the launcher in the job's control group, as a child that dies with the guard."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import Dict, List, NamedTuple, NoReturn, Optional, Tuple

from . import cgroup, syscalls

NOT_STARTED = 127


class Command(NamedTuple):
    """The command to run; `output` is the file to which stdout and stderr are appended."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    output: str


def spawn(command: Command, group: Optional[str]) -> Tuple[int, int]:
    """Fork a process that runs the launcher and dies with the calling process.

    Return its pid, and a pipe on which the reason arrives if the launcher cannot be executed.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            _run(command, group, writer)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode(errors="backslashreplace")[:2000])
        os._exit(NOT_STARTED)
    os.close(writer)
    return pid, reader


def _run(command: Command, group: Optional[str], problems: int) -> NoReturn:
    reset_signals()
    syscalls.die_with_parent()
    if _nobody_reads(problems):  # the guard died before the line above
        os._exit(NOT_STARTED)
    if group:
        cgroup.join(group)
    os.setsid()
    redirect(command.output)
    os.umask(0o022)  # nodectl's own stricter mask is not for the job's files
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - an argv, and no shell is the point


def _nobody_reads(pipe: int) -> bool:
    poller = select.poll()
    poller.register(pipe, 0)
    return bool(poller.poll(0))


def wake_on_child() -> int:
    """Return a handle that becomes readable after a child's end and after any other handled signal."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def redirect(output: str) -> None:
    """Connect standard input to /dev/null, and append standard output and error to this file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)


def reset_signals() -> None:
    """Reset the signal handling that a fork has inherited from the supervisor."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()


def close_all_but(*kept: int) -> None:
    """Close the inherited sockets and pipes of the supervisor, since these processes never exec."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the handle that listed the folder
                os.close(int(name))
