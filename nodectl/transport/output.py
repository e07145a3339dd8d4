"""What a command printed, kept up to a limit and decoded once."""

from __future__ import annotations

from time import monotonic

from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import Call

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
        """Take what arrived on `stream` (stdout or stderr)."""
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
        """The command ended by itself."""
        return self._result(
            Outcome.RAN, f"the output was cut after {KEPT_BYTES >> 20} MiB" if self.cut else "", "", exit_status
        )

    def overran(self) -> CommandResult:
        """The command was killed at its deadline."""
        error = f"no exit within {self._call.timeout_s or 0.0:g} s; its process group was killed"
        return self._result(Outcome.TIMEOUT, error, "give the command more time with --timeout")

    def lost(self, error: str, remedy: str = "") -> CommandResult:
        """The host could not be asked, or the connection ended before the command did."""
        return self._result(Outcome.UNREACHABLE, error, remedy)

    def _result(self, outcome: Outcome, error: str, remedy: str, exit_status: int | None = None) -> CommandResult:
        stdout, stderr = self._text("stdout"), self._text("stderr")
        host, argv, duration_s = self._call.host.name, tuple(self._call.argv), round(monotonic() - self.started, 4)
        return CommandResult(host, argv, outcome, exit_status, stdout, stderr, duration_s, error, remedy)

    def _text(self, stream: str) -> str:
        """Return what was kept, as text; bytes that are no UTF-8 are replaced."""
        return b"".join(self._kept[stream]).decode("utf-8", errors="replace")
