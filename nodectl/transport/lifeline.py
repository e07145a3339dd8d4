"""The lifeline: a few lines of POSIX sh that end a command on a host with the connection that started it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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
