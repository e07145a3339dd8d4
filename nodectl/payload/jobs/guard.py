"""The process beside the supervisor that starts the launcher, and ends the job where the supervisor dies or freezes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import List, NoReturn, Tuple

from . import nsinit, shared_memory, syscalls
from .contain import Containment
from .failures import SUPERVISOR_DIED, row
from .folder import JobFolder
from .heartbeat import FAILED
from .lifeline import Lifeline
from .process import exit_status, send

_END_S = 10.0
_BYE = b"bye\n"
_GONE = f"{SUPERVISOR_DIED}; its guard ended the job"
_FROZEN = "the job's supervisor there was stopped, or did not move, for {:g} s; its guard ended the job"


class Guard:
    """The supervisor's side of the guard: orders go through the lifeline, messages come back through `words`."""

    def __init__(self, job: JobFolder, containment: Containment, lease_s: float) -> None:
        self.lifeline = Lifeline(lease_s)
        self.words, writer = os.pipe()
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run(_Watch(job, containment, self.lifeline, writer, supervisor, lease_s))
        os.close(writer)
        os.close(self.lifeline.reader)
        os.set_blocking(self.words, False)
        self._text = ""

    def launch(self, command: nsinit.Command) -> None:
        """Have the guard start the launcher; `listen` returns the result."""
        self._order(json.dumps(command).encode() + b"\n")

    def dismiss(self) -> None:
        """Let the guard leave: the job has ended in good order."""
        self._order(_BYE)
        os.close(self.lifeline.writer)

    def _order(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone, which its end tells
            while line:
                line = line[os.write(self.lifeline.writer, line) :]

    def listen(self) -> List[Tuple[str, str]]:
        """Return the guard's new messages, each a keyword and its values.

        `problem`: why the launcher could not be started; `killed`: the signal that ended it; `exit`: its exit status.
        """
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self.words, 65536).decode(errors="replace")
        *lines, self._text = self._text.split("\n")
        return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


class _Watch:
    """The guard's process."""

    def __init__(
        self,
        job: JobFolder,
        containment: Containment,
        lifeline: Lifeline,
        report_fd: int,
        supervisor: int,
        lease_s: float,
    ) -> None:
        self._job, self._containment, self._lifeline = job, containment, lifeline
        self._report_fd, self._supervisor, self._lease_s = report_fd, supervisor, lease_s
        self._orders = b""
        self._child = 0
        self._problems = -1

    def run(self) -> NoReturn:
        """Watch the supervisor and follow its orders until the job or the supervisor ends."""
        nsinit.reset_signals()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.setsid()
        syscalls.become_subreaper()
        nsinit.close_all_but(self._lifeline.reader, self._report_fd)
        self._containment.keeper = os.getpid()
        self._containment.guarded_by(os.getpid())
        self._wake = nsinit.wake_on_child()
        self._pass_signals()
        while True:
            events = self._lifeline.wait(self._wake, read=True)
            self._reap()
            if events & select.POLLIN:
                self._obey()
            elif events & select.POLLHUP:
                self._end(_GONE)
            elif self._lifeline.silent():
                self._end_frozen()

    def _pass_signals(self) -> None:
        """Pass signals on to the launcher: whoever asks the guard to end wants the launcher to end."""

        def pass_on(number: int, _frame: object) -> None:
            if self._child:
                send(self._child, number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)

    def _obey(self) -> None:
        *lines, self._orders = (self._orders + os.read(self._lifeline.reader, 65536)).split(b"\n")
        for line in lines:
            if line + b"\n" == _BYE:
                os._exit(0)
            self._launch(nsinit.Command(*json.loads(line)))

    def _launch(self, command: nsinit.Command) -> None:
        held = self._containment
        try:
            self._child, self._problems = nsinit.spawn(command, held.group, held.namespace, self._lifeline)
        except OSError as error:
            self._say("problem", str(error))
            self._say("exit", str(nsinit.NOT_STARTED))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._child = 0
                self._say_end(exit_status(status), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)

    def _say_end(self, status: int, number: int) -> None:
        """Report the launcher's end; process 1 of a namespace has its exit status, and has reported a signal itself."""
        os.set_blocking(self._problems, False)
        problem = b""
        with contextlib.suppress(BlockingIOError):
            problem = os.read(self._problems, 4096)
        os.close(self._problems)
        if problem.startswith(nsinit.KILLED):
            number = int(problem[len(nsinit.KILLED) :])
        elif problem and status == nsinit.NOT_STARTED:
            self._say("problem", problem.decode(errors="replace"))
        if number:
            self._say("killed", str(number))
        self._say("exit", str(status))

    def _say(self, word: str, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report_fd, f"{word} {' '.join(text.split())}\n".encode(errors="backslashreplace"))

    def _end_frozen(self) -> None:
        self._kill_all()
        send(self._supervisor, signal.SIGKILL)
        self._end(_FROZEN.format(self._lease_s))

    def _end(self, why: str) -> NoReturn:
        """End the job, and record why if the supervisor has recorded no end."""
        self._kill_all()
        with contextlib.suppress(OSError):  # a full disk must not prevent the kill
            self._write_state(why)
        self._containment.remove()
        os._exit(0)

    def _kill_all(self) -> None:
        segments = self._containment.mapped()
        self._containment.kill(_END_S, self._reap)
        shared_memory.remove(segments)

    def _write_state(self, why: str) -> None:
        state = self._job.state()
        if state["final"] or not self._job.exists:
            return
        failures = [*state.get("failures", ()), row("supervisor", why, time.time())]
        self._job.write_state({**state, "state": FAILED, "final": True, "ended_at": time.time(), "failures": failures})


def _run(watch: _Watch) -> NoReturn:
    try:
        watch.run()
    finally:
        os._exit(1)
