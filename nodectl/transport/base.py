"""The contract of every transport: an argv and a deadline in, what happened out; no exception for a host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from nodectl.model.host import Host
from nodectl.model.result import CommandResult

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
    """One call of `Transport.run`, as it is handed to the transport that carries it out."""

    host: Host
    argv: Sequence[str]
    timeout_s: float | None
    stdin: bytes | None
    on_output: OnOutput | None

    @property
    def stdin_bytes(self) -> int | None:
        """The length of the input; None where the command has none."""
        return None if self.stdin is None else len(self.stdin)

    def deadline(self) -> float | None:
        """The moment of the monotonic clock at which it is to be over, if it starts now; None for no deadline."""
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
        """See Transport.run."""
        return self.call(Call(host, argv, timeout_s, stdin, on_output))

    @abstractmethod
    def call(self, call: Call) -> CommandResult:
        """Carry the call out, as `Transport.run` says."""
