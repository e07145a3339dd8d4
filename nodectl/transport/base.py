"""The contract of every transport: an argv and a deadline in, what happened out; no exception for a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
