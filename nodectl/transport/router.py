"""Which transport a host is reached by: SSH or this machine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from nodectl.errors import UsageError
from nodectl.model.result import CommandResult
from nodectl.transport.base import Call, CallTransport, Transport

if TYPE_CHECKING:
    from nodectl.model.host import Host
    from nodectl.transport.local import LocalTransport
    from nodectl.transport.ssh import SshTransport


def open_transport(replay: str | None = None) -> Transport:
    """The transport for a run of nodectl; it opens connections when they are first used."""
    if replay is not None:
        raise UsageError("--replay reads a recording, and this command needs the hosts themselves", "leave it out")
    return Router()


def connect_ahead(transport: Transport, hosts: Sequence[Host], forks: int) -> None:
    """Have the first hosts' connections opened while something else is done; commands say what fails."""
    if isinstance(transport, Router):
        transport.connect(hosts[:forks])


class Router(CallTransport):
    """Sends each host's commands to the transport that its inventory names."""

    @cached_property
    def _ssh(self) -> SshTransport:
        from nodectl.transport.ssh import SshTransport

        return SshTransport()

    @cached_property
    def _local(self) -> LocalTransport:
        from nodectl.transport.local import LocalTransport

        return LocalTransport()

    def connect(self, hosts: Sequence[Host]) -> None:
        """Begin to open connections, all at once."""
        for host in hosts:
            if host.connection != "local":
                # here, and not beside what the caller imports meanwhile: logins begin when it is loaded
                ssh = self._ssh
                threading.Thread(target=ssh.connect, args=(host,), daemon=True).start()

    def call(self, call: Call) -> CommandResult:
        """Run the command the way its host is reached."""
        return (self._local if call.host.connection == "local" else self._ssh).call(call)

    def close(self) -> None:
        """Close those transports that were used."""
        for name in ("_ssh", "_local"):
            if name in self.__dict__:
                self.__dict__[name].close()
