"""What became of one command on one host; a failing host is a value here, never an exception."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """`ran`: it has an exit status; `unreachable`: the host could not be asked; `timeout`: it overran its deadline."""

    RAN = "ran"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of one argv on one host; `exit_status` is None unless it ran, `error` says why it did not."""

    host: str
    argv: tuple[str, ...]
    outcome: Outcome
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    error: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """It ran and exited 0."""
        return self.outcome is Outcome.RAN and self.exit_status == 0

    @property
    def cut(self) -> bool:
        """It ran, and a part of its output was not kept, as `error` says."""
        return self.outcome is Outcome.RAN and bool(self.error)
