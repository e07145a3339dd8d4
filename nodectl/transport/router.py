"""Which transport a host is reached by: SSH or this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport.base import OnOutput, Transport

if TYPE_CHECKING:
    from nodectl.transport.local import LocalTransport
    from nodectl.transport.ssh import SshTransport


def open_transport(replay: str | None = None) -> Transport:
    """The transport for a run of nodectl; it opens connections when they are first used."""
    if replay is not None:
        raise UsageError("--replay reads a recording, and this command needs the hosts themselves", "leave it out")
    return Router()


class Router:
    """Sends each host's commands to the transport that its inventory names."""

    @cached_property
    def _ssh(self) -> SshTransport:
        from nodectl.transport.ssh import SshTransport

        return SshTransport()

    @cached_property
    def _local(self) -> LocalTransport:
        from nodectl.transport.local import LocalTransport

        return LocalTransport()

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
        transport: Transport = self._local if host.connection == "local" else self._ssh
        return transport.run(host, argv, timeout_s=timeout_s, stdin=stdin, on_output=on_output)

    def close(self) -> None:
        """Close those transports that were used."""
        for name in ("_ssh", "_local"):
            if name in self.__dict__:
                self.__dict__[name].close()
