"""Whether a login shell has started the command whose input it was given, or keeps it to itself."""

from __future__ import annotations

from time import monotonic

from nodectl.model.result import CommandResult
from nodectl.transport.base import Call
from nodectl.transport.lifeline import STARTED
from nodectl.transport.output import Output

# start files on a slow file system take seconds
START_S = 30.0


class Start:
    """Takes the line by which a command with input says that it starts out of what its host prints; `waits` for it."""

    def __init__(self, call: Call) -> None:
        self.waits = call.stdin is not None
        self._until = monotonic() + START_S
        self._held = b""

    def passed(self, data: bytes) -> bytes:
        """Return what of `data` is not that line; what may be its beginning is kept for the next time."""
        if not self.waits:
            return data
        before, line, after = (self._held + data).partition(STARTED)
        if line:
            self.waits, self._held = False, b""
            return before + after
        begun = next(size for size in range(len(STARTED) - 1, -1, -1) if before.endswith(STARTED[:size]))
        self._held = before[len(before) - begun :]
        return before[: len(before) - begun]

    def held(self) -> bytes:
        """Return what was kept and turned out to be no line, once nothing more comes."""
        held, self._held = self._held, b""
        return held

    @property
    def is_late(self) -> bool:
        """The time for it is over."""
        return self.waits and monotonic() >= self._until

    def missed(self, output: Output) -> CommandResult:
        """The result of a command that did not start in time."""
        return output.lost(
            f"the login shell did not start the command within {START_S:g} s: one of its start files waits, "
            "reads the input, or starts another shell",
            "look at ~/.bashrc and /etc/profile.d there: what asks (`read`) or waits is for interactive shells only: "
            "`case $- in *i*) ;; *) return ;; esac` before it",
        )
