"""How the launcher is started: in the job's group, in a pid namespace that dies with the supervisor."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import Callable, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from . import cgroup, syscalls
from .process import descendants, exit_status, send

NOT_STARTED = 127
_GUARD_POLL_S = 0.1


class Command(NamedTuple):
    """What to run; `output` is the path that stdout and stderr are appended to."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    output: str


def available() -> bool:
    """This login may make a pid namespace with a /proc of its own (tried out in a child)."""
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


def spawn(command: Command, group: Optional[str], namespace: bool) -> Tuple[int, str]:
    """Fork the outer process; its pid, and why the launcher could not be executed (empty when it was)."""
    reader, writer = os.pipe()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _guarded(lambda: _outer(command, group, namespace, supervisor), writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read()
    return pid, problem.decode(errors="replace")


def _guarded(body: Callable[[], NoReturn], writer: int) -> NoReturn:
    """Run `body`, which does not return, with its failure written to the supervisor."""
    try:
        body()
    except BaseException as error:
        os.write(writer, f"{type(error).__name__}: {error}".encode()[:2000])
    os._exit(NOT_STARTED)


def _outer(command: Command, group: Optional[str], namespace: bool, supervisor: int) -> NoReturn:
    """Dies with the supervisor, or ends the job when that has died; all below dies with it or by the group."""
    _reset_signals()
    if namespace:
        syscalls.die_with_parent()
    if os.getppid() != supervisor:
        os._exit(NOT_STARTED)
    os.setsid()
    redirect(command.output)
    if group:
        cgroup.join(group)
    if not namespace:
        _guard(command, supervisor)
    syscalls.unshare(syscalls.CLONE_NEWPID)
    lifeline, held = os.pipe()
    inner = os.fork()
    if inner == 0:
        os.close(held)
        syscalls.die_with_parent()
        if select.select([lifeline], [], [], 0)[0]:  # the outer process died before the line above
            os._exit(NOT_STARTED)
        os.close(lifeline)
        _init(command)
    _close_all_but(held)
    _pass_on_and_wait(inner)


def _guard(command: Command, supervisor: int) -> NoReturn:
    """Without a namespace: adopt the job's orphans, and outlive the supervisor just long enough to end them all."""
    syscalls.become_subreaper()
    launcher = os.fork()
    if launcher == 0:
        os.setsid()
        _execute(command)
    _close_all_but(-1)
    _pass_signals_to(launcher)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == launcher:
            os._exit(exit_status(status))
        if os.getppid() != supervisor:
            _end_descendants()
        if pid == 0:
            time.sleep(_GUARD_POLL_S)


def _end_descendants() -> NoReturn:
    for number in (signal.SIGSTOP, signal.SIGSTOP):  # first stop what forks faster than it can be killed
        for pid in descendants({os.getpid()}):
            send(pid, number)
    while True:
        for pid in descendants({os.getpid()}):
            send(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(NOT_STARTED)


def _init(command: Command) -> NoReturn:
    """Process 1 of the namespace: reaps, passes SIGTERM on, and ends with the launcher, and all else with it."""
    syscalls.mount_fresh_proc()
    launcher = os.fork()
    if launcher == 0:
        os.setsid()
        _execute(command)
    _close_all_but(-1)
    _pass_on_and_wait(launcher)


def _pass_signals_to(child: int) -> None:
    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)


def _pass_on_and_wait(child: int) -> NoReturn:
    _pass_signals_to(child)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            os._exit(exit_status(status))


def _execute(command: Command) -> NoReturn:
    os.umask(0o022)  # the job's files are the user's business, unlike nodectl's own
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - an argv, and no shell is the point


def redirect(output: str) -> None:
    """Standard input from nowhere, standard output and error to the end of this file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()


def _close_all_but(kept: int) -> None:
    """Let go of the supervisor's sockets and pipes: these processes never execute another program."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the handle that listed the folder
                os.close(int(name))
