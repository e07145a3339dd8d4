"""Fabric for the operator's own scripts: a group whose connections nodectl opens, so that host keys are checked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from fabric import Config, Connection, Group
from fabric.exceptions import GroupException
from fabric.group import GroupResult
from fabric.runners import Remote

from nodectl.common.files import folder_name
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.transport.fanout import FORKS, fan_out
from nodectl.transport.ssh_client import SshClient
from nodectl.transport.ssh_target import password_of, target_of

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class QuotingRemote(Remote):  # type: ignore[misc]  # fabric ships no types
    """Fabric's runner pastes `env=` into the command line as it stands; here each value is quoted for the shell."""

    def start(self, command: str, shell: str, env: dict[str, str], timeout: float | None = None) -> None:
        """Send the command, with `env` exported before it; UsageError for what is no name of a variable."""
        for name in env:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"env: {name!r} is no name of a variable", "write it with A-Z, a-z, 0-9 and _ only")
            if "\0" in str(env[name]):
                raise UsageError(f"env: the value of {name} has a NUL character, which no variable can hold")
        super().start(command, shell, {name: shlex.quote(str(value)) for name, value in env.items()}, timeout)


class CheckedConnection(Connection):  # type: ignore[misc]
    """A fabric.Connection whose SSH session nodectl opens: `run`, `sudo`, `put` and `get` are Fabric's.

    Fabric itself would accept any new host key. UnreachableError if the host cannot be reached, or its key is not
    the known one. `host` is the host's name in the inventory.
    """

    def __init__(self, host: Host, client: SshClient | None = None) -> None:
        if host.connection != "ssh":
            raise UsageError(f"{host.name} is reached by '{host.connection}', not by SSH", "leave it out")
        target = target_of(host)
        config = Config(lazy=True, overrides={"runners": {"remote": QuotingRemote}})
        super().__init__(host.name, user=target.user, port=target.port, config=config)
        self._set(
            _nodectl_target=target,
            _nodectl_password=password_of(host),
            _nodectl_client=client or SshClient(),
            _nodectl_owns_client=client is None,
        )

    def open(self) -> None:
        """Connect and log in, if that has not been done."""
        if not self.is_connected:
            self.transport = self._nodectl_client.login(self._nodectl_target, self._nodectl_password)
            self.client._transport = self.transport

    def get(self, remote: str, local: Any = None, preserve_mode: bool = True) -> Any:
        """Fetch as Fabric does; `{host}` in `local` becomes the host's name as one path component."""
        if isinstance(local, str):
            local = local.replace("{host}", folder_name(self.host))
        return super().get(remote, local, preserve_mode)

    def close(self) -> None:
        """Close the session, and those to jump hosts that no group shares."""
        super().close()
        if self._nodectl_owns_client:
            self._nodectl_client.close()


class CheckedGroup(Group):  # type: ignore[misc]
    """A fabric.Group over hosts of an inventory, at most `forks` of them at a time.

    As in Fabric, `run`, `sudo`, `put` and `get` return a GroupResult (connection → result), or raise GroupException
    with one where any host failed.
    """

    def __init__(self, hosts: Sequence[Host] = (), forks: int = FORKS) -> None:
        super().__init__()
        if forks < 1:
            raise UsageError(f"forks={forks}: it must be 1 or more")
        self._client, self._forks = SshClient(), forks
        self.extend(CheckedConnection(host, self._client) for host in hosts)

    def close(self) -> None:
        """Close every session, and those to jump hosts."""
        super().close()
        self._client.close()

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
