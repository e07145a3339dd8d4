"""What a command printed, kept up to a limit and decoded once."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import OnOutput

KEPT_BYTES = 16 * 1024 * 1024


class Output:
    """Collects stdout and stderr of one command; with `on_output` it hands them on and keeps nothing."""

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self._on_output = on_output
        self._kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._left_bytes = {"stdout": KEPT_BYTES, "stderr": KEPT_BYTES}
        self.cut = False

    def add(self, stream: str, data: bytes) -> None:
        """Take what arrived on `stream` (stdout or stderr)."""
        if self._on_output is not None:
            self._on_output(stream, data)
            return
        kept = data[: self._left_bytes[stream]]
        self.cut = self.cut or len(kept) < len(data)
        self._left_bytes[stream] -= len(kept)
        self._kept[stream].append(kept)

    def text(self, stream: str) -> str:
        """What was kept, as text; bytes that are no UTF-8 are replaced."""
        return b"".join(self._kept[stream]).decode("utf-8", errors="replace")

    def ran(self, host: Host, argv: Sequence[str], exit_status: int, duration_s: float) -> CommandResult:
        """The command ended by itself."""
        error = f"output cut after {KEPT_BYTES >> 20} MiB" if self.cut else ""
        return self._result(host, argv, Outcome.RAN, exit_status, duration_s, error, "")

    def overran(self, host: Host, argv: Sequence[str], timeout_s: float, duration_s: float) -> CommandResult:
        """The command was killed at its deadline."""
        error = f"no exit within {timeout_s:g} s; its process group was killed"
        return self._result(host, argv, Outcome.TIMEOUT, None, duration_s, error, "give it more time with --timeout")

    def lost(self, host: Host, argv: Sequence[str], error: str, remedy: str, duration_s: float) -> CommandResult:
        """The host could not be asked, or the connection ended before the command did."""
        return self._result(host, argv, Outcome.UNREACHABLE, None, duration_s, error, remedy)

    def _result(
        self,
        host: Host,
        argv: Sequence[str],
        outcome: Outcome,
        exit_status: int | None,
        duration_s: float,
        error: str,
        remedy: str,
    ) -> CommandResult:
        stdout, stderr = self.text("stdout"), self.text("stderr")
        return CommandResult(
            host.name, tuple(argv), outcome, exit_status, stdout, stderr, round(duration_s, 4), error, remedy
        )
