"""Fabric for the operator's own scripts: a group whose connections check host keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric import Group
from fabric.exceptions import GroupException
from fabric.group import GroupResult

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.transport.connection import CheckedConnection, Connections
from nodectl.transport.fanout import FORKS, fan_out
from nodectl.transport.ssh_target import password_of, target_of


class CheckedGroup(Group):  # type: ignore[misc]
    """A fabric.Group over hosts of an inventory, at most `forks` of them at a time.

    As in Fabric, `run`, `sudo`, `put` and `get` return a GroupResult (connection → result), or raise GroupException
    with one where any host failed.
    """

    def __init__(self, hosts: Sequence[Host] = (), forks: int = FORKS) -> None:
        super().__init__()
        if forks < 1:
            raise UsageError(f"forks={forks}: it must be 1 or more")
        self._connections, self._forks = Connections(), forks
        for host in hosts:
            if host.connection != "ssh":
                raise UsageError(f"{host.name} is reached by '{host.connection}', not by SSH", "leave it out")
            self.append(self._connections.to(host.name, target_of(host), password_of(host)))

    def close(self) -> None:
        """Close every session, and those to jump hosts."""
        super().close()
        self._connections.close()

    def _do(self, method: str, *args: Any, **kwargs: Any) -> GroupResult:
        if method in ("run", "sudo"):
            kwargs.setdefault("in_stream", False)  # one terminal cannot be the input of many hosts

        def call(connection: CheckedConnection) -> Any:
            try:
                return getattr(connection, method)(*args, **kwargs)
            except Exception as error:  # a host's failure is a value in Fabric's result
                return error

        outcomes = dict(fan_out(self, call, self._forks))
        results = GroupResult((connection, outcomes[connection]) for connection in self)
        if any(isinstance(outcome, Exception) for outcome in outcomes.values()):
            raise GroupException(results)
        return results
