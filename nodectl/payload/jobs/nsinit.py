"""Executes the launcher in the job's control group and, where root may make one, in a separate pid namespace."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from . import cgroup, syscalls
from .lifeline import Lifeline
from .process import exit_status

NOT_STARTED = 127
KILLED = b"killed "
_PATIENCE_S = 2.0  # the guard, which also ends other leftovers, gets this time first


class Command(NamedTuple):
    """The command to run; `output` is the file to which stdout and stderr are appended."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    output: str


def available() -> bool:
    """Tell whether this login may make a pid namespace with a /proc of its own (tried out in a child)."""
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        status = 1
        try:
            syscalls.unshare(syscalls.CLONE_NEWPID)
            inner = os.fork()
            if inner == 0:
                syscalls.mount_fresh_proc()
                os._exit(0)
            status = os.waitpid(inner, 0)[1]
        finally:
            os._exit(1 if status else 0)
    return os.waitpid(child, 0)[1] == 0


def spawn(command: Command, group: Optional[str], namespace: bool, lifeline: Lifeline) -> Tuple[int, int]:
    """Fork a process that runs the launcher and dies with the calling process.

    Return its pid (process 1 of a namespace, else the launcher), and a pipe on which the reason arrives if the launcher
    cannot be executed.
    """
    reader, writer = os.pipe()
    if namespace:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _or_say(lambda: _run(command, group, namespace, lifeline, writer), writer)
    os.close(writer)
    return pid, reader


def _or_say(body: Callable[[], NoReturn], problems: int) -> NoReturn:
    """Run `body`, which does not return; write its failure to the guard."""
    try:
        body()
    except BaseException as error:
        os.write(problems, f"{type(error).__name__}: {error}".encode(errors="backslashreplace")[:2000])
    os._exit(NOT_STARTED)


def _run(command: Command, group: Optional[str], namespace: bool, lifeline: Lifeline, problems: int) -> NoReturn:
    reset_signals()
    syscalls.die_with_parent()
    if _nobody_reads(problems):  # the guard died before the line above
        os._exit(NOT_STARTED)
    if group:
        cgroup.join(group)
    if not namespace:
        _start(command)
    syscalls.mount_fresh_proc()
    launcher = os.fork()
    if launcher == 0:
        _or_say(lambda: _start(command), problems)
    _init(launcher, lifeline, problems)


def _nobody_reads(pipe: int) -> bool:
    poller = select.poll()
    poller.register(pipe, 0)
    return bool(poller.poll(0))


def _start(command: Command) -> NoReturn:
    os.setsid()
    redirect(command.output)
    os.umask(0o022)  # nodectl's own stricter mask is not for the job's files
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - an argv, and no shell is the point


def _init(launcher: int, lifeline: Lifeline, problems: int) -> NoReturn:
    """Run process 1 of the namespace: it reaps, passes SIGTERM on, and ends with the launcher, which ends all others.

    It reports a signal that ended the launcher to the guard, and ends if supervisor and guard are both gone or frozen.
    """
    close_all_but(lifeline.reader, problems)
    pass_signals_to(launcher)
    wake = wake_on_child()
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == launcher:
            if os.WIFSIGNALED(status):
                with contextlib.suppress(OSError):
                    os.write(problems, KILLED + str(os.WTERMSIG(status)).encode())
            os._exit(exit_status(status))
        if pid == 0 and lifeline.lost(wake):
            time.sleep(_PATIENCE_S)
            os._exit(NOT_STARTED)


def wake_on_child() -> int:
    """Return a handle that becomes readable after a child's end and after any other handled signal."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def pass_signals_to(child: int) -> None:
    """Pass the signals that ask this process to end on to `child`."""

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)


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
