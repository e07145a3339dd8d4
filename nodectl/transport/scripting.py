"""Fabric for the operator's own scripts: a Connection that reaches a host as nodectl does, host key checked."""

from __future__ import annotations

from typing import Any

from fabric import Config, Connection

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.transport.connection import Connector
from nodectl.transport.target import target_of


class CheckedConnection(Connection):  # type: ignore[misc]  # fabric ships no types
    """A fabric.Connection whose SSH session nodectl opens: `run`, `sudo`, `put` and `get` are Fabric's.

    Fabric itself would accept any new host key. UnreachableError where the host cannot be reached, or its key is not
    the known one.
    """

    def __init__(self, host: Host) -> None:
        if host.connection != "ssh":
            raise UsageError(f"{host.name} is reached by '{host.connection}', not by SSH", "leave it out")
        target = target_of(host)
        super().__init__(target.address, user=target.user, port=target.port, config=Config(lazy=True))
        self._set(_nodectl_host=host, _nodectl_connector=Connector())

    def open(self) -> Any:
        """Connect and log in, where that has not been done."""
        if not self.is_connected:
            password = self._nodectl_host.variables.get("ansible_password")
            self.transport = self._nodectl_connector.connect(
                target_of(self._nodectl_host), None if password is None else str(password)
            )
            self.client._transport = self.transport

    def close(self) -> Any:
        """Close the session, and those to jump hosts."""
        super().close()
        self._nodectl_connector.close()
