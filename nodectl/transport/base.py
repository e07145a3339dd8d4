"""The contract of every transport: an argv and a deadline in, a result out; a host's failure is no exception.

The lifeline: a few lines of POSIX sh that end a command on a host with the connection that started it.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome

# called from a worker thread with "stdout" or "stderr" and bytes as they arrive
OnOutput = Callable[[str, bytes], None]


class Transport(Protocol):
    """Ways to run a command on a host; safe to use from many threads, one connection a host kept until `close`."""

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run `argv` (quoted once, here) on `host`.

        The command ends with the connection: at the deadline, on Ctrl-C, or when this process dies, its process group
        on the host is killed. `timeout_s` None means no deadline (following a log). With `on_output` the output is
        handed over as it comes and not kept.
        """
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one `Transport.run`, as one value."""

    host: Host
    argv: Sequence[str]
    timeout_s: float | None
    stdin: bytes | None
    on_output: OnOutput | None

    @property
    def stdin_bytes(self) -> int | None:
        """The length of the input; None if the command has none."""
        return None if self.stdin is None else len(self.stdin)

    def deadline(self) -> float | None:
        """Return the monotonic time at which a command that starts now is over its deadline; None without one."""
        return None if self.timeout_s is None else monotonic() + self.timeout_s


class CallTransport(Transport):
    """A transport that takes the arguments of `run` as one value."""

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """See Transport.run; whatever goes wrong with one host is that host's result."""
        call = Call(host, argv, timeout_s, stdin, on_output)
        try:
            return self.call(call)
        except Exception as error:
            return Output(call).lost(f"{type(error).__name__}: {error}", "look at its variables in the inventory")

    @abstractmethod
    def call(self, call: Call) -> CommandResult:
        """Run the call's command, under the contract of `Transport.run`."""


KEPT_BYTES = 16 * 1024 * 1024


class Output:
    """Collects stdout and stderr of one command, and makes its result; with `on_output` it keeps nothing.

    A command's duration counts from `started`.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.started = monotonic()
        self._kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._left_bytes = {"stdout": KEPT_BYTES, "stderr": KEPT_BYTES}
        self.cut = False

    def add(self, stream: str, data: bytes) -> None:
        """Add bytes that arrived on `stream` (stdout or stderr)."""
        if not data:
            return
        if self._call.on_output is not None:
            self._call.on_output(stream, data)
            return
        kept = data[: self._left_bytes[stream]]
        self.cut = self.cut or len(kept) < len(data)
        self._left_bytes[stream] -= len(kept)
        self._kept[stream].append(kept)

    def ran(self, exit_status: int) -> CommandResult:
        """Return the result of a command that ended by itself."""
        return self._result(
            Outcome.RAN, f"the output was cut after {KEPT_BYTES >> 20} MiB" if self.cut else "", "", exit_status
        )

    def overran(self) -> CommandResult:
        """Return the result of a command that was killed at its deadline."""
        error = f"no exit within {self._call.timeout_s or 0.0:g} s; its process group was killed"
        return self._result(Outcome.TIMEOUT, error, "give the command more time with --timeout")

    def lost(self, error: str, remedy: str = "") -> CommandResult:
        """Return the result for a host that was not reached, or whose connection ended before the command."""
        return self._result(Outcome.UNREACHABLE, error, remedy)

    def _result(self, outcome: Outcome, error: str, remedy: str, exit_status: int | None = None) -> CommandResult:
        stdout, stderr = self._text("stdout"), self._text("stderr")
        host, argv, duration_s = self._call.host.name, tuple(self._call.argv), round(monotonic() - self.started, 4)
        return CommandResult(host, argv, outcome, exit_status, stdout, stderr, duration_s, error, remedy)

    def _text(self, stream: str) -> str:
        return b"".join(self._kept[stream]).decode("utf-8", errors="replace")


# Standard input is the lifeline: nodectl keeps it open and sends nothing more. When it ends, for whatever reason, the
# watcher ends the command's process group ($$ leads it: sshd and Popen(start_new_session) see to that). A daemon
# that the command left behind on purpose outlives it, because by then $$ is gone. `exec` in a subshell runs programs
# only, never a builtin; file descriptor 4 keeps the shell's own "Killed" out of the command's stderr.
_CUT = (
    "cut() { kill -0 $$ && { kill -TERM -$$; sleep 2; kill -KILL -$$; }; }; "
    "deaf() { exec >/dev/null 2>&1 4>&-; trap '' HUP INT TERM; }; "
    "watch() { deaf; while read -r _; do :; done; cut; }; "
    "trap : HUP INT TERM; "
)
_OPEN = "exec 3<&0 </dev/null 4>&2 2>/dev/null; "
_RUN = '(exec "$@") 2>&4 3<&- 4>&-; s=$?; kill -KILL $!; exit $s'
_WITHOUT_INPUT = _CUT + _OPEN + "(exec <&3 3<&-; watch) & " + _RUN
# With input, the watcher can only read after the command's input has passed; until then a second watcher polls for the
# parent (sshd). It is killed then, since a process each second costs much where many hosts share one machine.
_WITH_INPUT = (
    _CUT
    + "p=$PPID; n=$1; shift; "
    + _OPEN
    + "{ (exec 3<&-; deaf; while kill -0 $p; do sleep 1; done; cut) & "
    + 'head -c "$n" <&3; kill -KILL $!; (exec <&3 3<&-; watch) & } | '
    + _RUN
)


def wrapped(argv: Sequence[str], stdin_bytes: int | None) -> list[str]:
    """Return `argv` wrapped in the lifeline; the first `stdin_bytes` bytes of the input belong to the command."""
    if stdin_bytes is None:
        return ["/bin/sh", "-c", _WITHOUT_INPUT, "sh", *argv]
    return ["/bin/sh", "-c", _WITH_INPUT, "sh", str(stdin_bytes), *argv]


# the first line of a command's output over SSH: a login shell that never prints it did not run the command
STARTED = b"nodectl-command-started\n"


def command_line(argv: Sequence[str], stdin_bytes: int | None) -> str:
    """Return the wrapped argv as one line for a login shell: the only place where an argv is quoted."""
    return f"echo {STARTED.decode().strip()}; exec {shlex.join(wrapped(argv, stdin_bytes))}"
