"""Runs commands over SSH: one kept connection a host, one channel a command."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from time import monotonic

import paramiko

from nodectl.errors import NodectlError, UnreachableError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport.base import STARTED, Call, CallTransport, Output, command_line
from nodectl.transport.connection import CheckedConnection, Connections
from nodectl.transport.ssh_target import password_of, target_of

_CHUNK_BYTES = 65536
# time for the rest of the output after the exit status; a daemon left behind may never close the channel
_DRAIN_S = 0.5
_POLL_S = 0.25
# connections kept for further commands at most: each costs a thread and a file descriptor
_KEPT = 256
# of what a login shell printed instead of running the command
_SHOWN = 200
_ERRORS = (OSError, EOFError, paramiko.SSHException)


class SshTransport(CallTransport):
    """Runs commands on hosts over SSH; host keys are checked, always."""

    def __init__(self) -> None:
        self._connections = Connections()
        self._lock = threading.Lock()
        self._kept: dict[Host, CheckedConnection] = {}
        self._closed = False

    def call(self, call: Call) -> CommandResult:
        """Run the command over SSH; the deadline starts when the host is connected, which has one of its own."""
        output = Output(call)
        try:
            connection = self._connection(call.host)
        except NodectlError as error:
            return output.lost(error.message, error.remedy)
        with self._lock:
            connection.users += 1
        try:
            return self._on(connection, call)
        except NodectlError as error:
            return output.lost(error.message, error.remedy)
        finally:
            with self._lock:
                connection.users -= 1
                if connection.users == 0 and len(self._kept) > _KEPT:
                    connection.close()

    def close(self) -> None:
        """Close every connection; commands that still run on the hosts end with them."""
        self._closed = True
        for connection in list(self._kept.values()):
            connection.close()
        self._connections.close()

    def _connection(self, host: Host) -> CheckedConnection:
        with self._lock:
            kept = self._kept.get(host)
        if kept is None:
            made = self._connections.to(host.name, target_of(host), password_of(host))
            with self._lock:
                kept = self._kept.setdefault(host, made)
        return kept

    def _on(self, connection: CheckedConnection, call: Call) -> CommandResult:
        channel = self._session(connection)
        output, deadline, failures = _CommandOutput(call), call.deadline(), list[str]()
        try:
            threading.Thread(target=_send, args=(channel, call, failures), daemon=True).start()
            ended = _follow(channel, output, deadline)
        finally:
            with suppress(*_ERRORS):  # the connection may be closed by another thread
                channel.close()
        if not ended:
            # unread input keeps the watcher from reading: end the connection, if no other command uses it
            if call.stdin is not None and connection.users == 1:
                connection.close()
            return output.overran()
        if failures:
            return output.lost(f"the command was not sent: {failures[0]}")
        if channel.exit_status < 0:
            return output.lost("the connection was lost before the command ended", "check the host")
        return output.ran(channel.exit_status) if output.has_started else output.not_started(channel.exit_status)

    def _session(self, connection: CheckedConnection) -> paramiko.Channel:
        """Return a session on the kept connection, or on a new one if the kept one is dead."""
        for _ in range(2):
            if self._closed:
                raise UnreachableError(f"{connection.host}: interrupted")
            connection.open()
            try:
                channel: paramiko.Channel = connection.create_session()
            except _ERRORS as error:
                if connection.is_connected:
                    raise UnreachableError(
                        f"{connection.host}: no session: {error}", "check sshd (MaxSessions)"
                    ) from error
            else:
                return channel
        raise UnreachableError(f"{connection.host}: the connection was lost at once", "check the host")


class _CommandOutput(Output):
    """Output of a command, without the lines that the login shell printed on stdout before the command started."""

    has_started = False
    _before = b""

    def add(self, stream: str, data: bytes) -> None:
        if stream == "stdout" and not self.has_started:
            before, mark, data = (self._before + data).partition(STARTED)
            self._before, self.has_started = before[-_CHUNK_BYTES:], bool(mark)
        super().add(stream, data)

    def not_started(self, exit_status: int) -> CommandResult:
        """Return the result for a host whose login shell ended with this status instead of running the command."""
        printed = " ".join(self._before.decode(errors="replace").split())[-_SHOWN:]
        error = f"its login shell ended with {exit_status} and did not run the command"
        remedy = "log in with ssh: look for `exit` or a menu in .bashrc, or for a forced command in authorized_keys"
        return self.lost(f"{error}: {printed}" if printed else error, remedy)


def _send(channel: paramiko.Channel, call: Call, failures: list[str]) -> None:
    """Request the command, send its input and leave the channel open: it is the lifeline."""
    try:
        # a word of the command line may be no UTF-8
        channel.exec_command(os.fsencode(command_line(call.argv, call.stdin_bytes)))
        channel.sendall(call.stdin or b"")
    except _ERRORS:  # sshd has refused the command, or the command has ended without reading it all
        pass
    except Exception as error:
        failures.append(f"{type(error).__name__}: {error}")
        with suppress(*_ERRORS):  # the connection may be closed by another thread
            channel.close()


def _follow(channel: paramiko.Channel, output: Output, deadline: float | None) -> bool:
    """Collect output until the command ends (True), or its deadline is over (False)."""
    poller = select.poll()
    poller.register(channel.fileno(), select.POLLIN)
    quiet_since: float | None = None
    while True:
        closed = channel.closed or channel.eof_received
        got = _drain(channel, output)
        now, ended = monotonic(), channel.status_event.is_set()
        if (closed and ended) or channel.closed:
            _drain(channel, output)
            return True
        if ended:
            quiet_since = now if got or quiet_since is None else quiet_since
            if now - quiet_since > _DRAIN_S:
                return True
        elif deadline is not None and now >= deadline:
            return False
        wait_s = _POLL_S if deadline is None or ended else max(0.0, min(_POLL_S, deadline - now))
        if closed:  # the pipe stays readable
            channel.status_event.wait(wait_s)
        else:
            poller.poll(wait_s * 1000)


def _drain(channel: paramiko.Channel, output: Output) -> bool:
    got = False
    while channel.recv_ready():
        output.add("stdout", channel.recv(_CHUNK_BYTES))
        got = True
    while channel.recv_stderr_ready():
        output.add("stderr", channel.recv_stderr(_CHUNK_BYTES))
        got = True
    return got
