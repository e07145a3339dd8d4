"""Runs commands over SSH: one kept connection a host, one channel a command; a login shell that hangs is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

import paramiko

from nodectl.errors import NodectlError, UnreachableError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport.base import Call, CallTransport, Output
from nodectl.transport.lifeline import BEFORE_INPUT, FOR_START_FILES, STARTED, command_line
from nodectl.transport.ssh_client import CONNECT_S, SharedConnection, SshClient
from nodectl.transport.ssh_target import password_of, target_of

# start files on a slow file system take seconds
START_S = 30.0


class Start:
    """Removes from a host's output the line by which a command reports its start; `waits`: not seen yet."""

    def __init__(self) -> None:
        self.waits = True
        self._until = monotonic() + START_S
        self._held = b""

    def passed(self, data: bytes) -> bytes:
        """Return `data` without that line; a part that may be its beginning is held back until the next call."""
        if not self.waits:
            return data
        before, line, after = (self._held + data).partition(STARTED)
        if line:
            self.waits, self._held = False, b""
            return before + after
        begun = next(size for size in range(len(STARTED) - 1, -1, -1) if before.endswith(STARTED[:size]))
        self._held = before[len(before) - begun :]
        return before[: len(before) - begun]

    def held(self) -> bytes:
        """Return the part held back, once no more output comes."""
        held, self._held = self._held, b""
        return held

    @property
    def is_late(self) -> bool:
        """Tell whether the command has not started in time."""
        return self.waits and monotonic() >= self._until

    def ended(self, output: Output, status: int) -> CommandResult:
        """Return the result of a call that ended; a shell that ended well without the command is no success."""
        if not self.waits or status:
            return output.ran(status)
        return output.lost(
            "the login shell ended before it started the command",
            "look at ~/.bashrc and /etc/profile.d there for `exit` or `exec`, and at ForceCommand of its sshd",
        )

    def missed(self, output: Output) -> CommandResult:
        """Return the result of a command that did not start in time."""
        return output.lost(
            f"the login shell did not start the command within {START_S:g} s: one of its start files waits, "
            "reads the input, or starts another shell; or the link carries next to nothing",
            "look at ~/.bashrc and /etc/profile.d there: what asks (`read`) or waits is for interactive shells only: "
            "`case $- in *i*) ;; *) return ;; esac` before it",
        )


_CHUNK_BYTES = 65536
# time for the rest of the output after the exit status; a daemon left behind may never close the channel
_DRAIN_S = 0.5
_TERM_S = 2.0
_POLL_S = 0.25
_ASK_S = 1.0
# connections kept for further commands at most: each costs a thread and a file descriptor
_KEPT = 256


class SshTransport(CallTransport):
    """Runs commands on hosts over SSH; host keys are checked, always."""

    def __init__(self) -> None:
        self._client = SshClient()
        self._lock = threading.Lock()
        self._connections: dict[Host, SharedConnection] = {}
        self._running: dict[paramiko.Channel, Start] = {}
        self._closed = False

    def call(self, call: Call) -> CommandResult:
        """Run the command over SSH; the deadline starts when the host is connected, which has one of its own."""
        output = Output(call)
        try:
            channel = self._channel(call.host)
        except NodectlError as error:
            return output.lost(error.message, error.remedy)
        try:
            return self._on(channel, call, Output(call))
        finally:
            self._release(call.host)

    def _on(self, channel: paramiko.Channel, call: Call, output: Output) -> CommandResult:
        deadline, start = call.deadline(), Start()
        self._running[channel] = start
        try:
            _send(channel, call)
            ended = _follow(channel, output, deadline, start)
        except (OSError, EOFError, paramiko.SSHException):
            ended = True
        finally:
            del self._running[channel]
        status = channel.exit_status
        if not ended and call.stdin is None:
            _signal(channel, "TERM")
        gone = ended or call.stdin is None or _ended_by_signals(channel)
        with suppress(OSError, EOFError, paramiko.SSHException):  # the connection may be closed by another thread
            channel.close()
        if not ended:
            if not gone:  # unread input keeps the watcher from reading: end the connection, if no other command uses it
                self._close_unshared(call.host)
            return start.missed(output) if start.is_late else output.overran()
        if status < 0:
            return output.lost("the connection was lost before the command ended", "check the host")
        return start.ended(output, status)

    def _close_unshared(self, host: Host) -> None:
        """Close the host's connection unless another command runs over it, for example one that holds a lock."""
        shared = self._connections[host]
        with shared.lock:
            if shared.users <= 1:
                shared.close()

    def close(self) -> None:
        """Close every connection; commands that still run on the hosts end with them."""
        self._closed = True
        starting = [channel for channel, start in list(self._running.items()) if start.waits]
        if starting:
            asking = threading.Thread(target=_terminate, args=(starting,), daemon=True)
            asking.start()
            asking.join(_ASK_S)  # over a dead connection nothing can be sent
        for shared in list(self._connections.values()):
            shared.close()
        self._client.close()

    def _channel(self, host: Host) -> paramiko.Channel:
        """Return a session on the kept connection, or on a new one if the kept one is dead."""
        for _ in range(2):
            kept = self._connected(host)
            try:
                return kept.open_session(timeout=CONNECT_S)
            except (OSError, EOFError, paramiko.SSHException) as error:
                self._release(host)
                if kept.is_active():
                    raise UnreachableError(f"{host.name}: no session: {error}", "check sshd (MaxSessions)") from error
        raise UnreachableError(f"{host.name}: the connection was lost at once", "check the host")

    def _connected(self, host: Host) -> paramiko.Transport:
        with self._lock:
            shared = self._connections.setdefault(host, SharedConnection())
        with shared.lock:
            if self._closed:
                raise UnreachableError(f"{host.name}: interrupted")
            transport = shared.alive() or shared.opened(self._client.login(target_of(host), password_of(host)))
            if self._closed:
                transport.close()
            shared.users += 1
            return transport

    def _release(self, host: Host) -> None:
        shared = self._connections[host]
        with shared.lock:
            shared.users -= 1
            if shared.users == 0 and len(self._connections) > _KEPT:
                shared.close()


class _Wake(threading.Event):
    """An event that both of a channel's streams set and only the reader resets, so that neither hides the other."""

    def clear(self) -> None:
        """Do nothing: paramiko calls this when a stream is empty, and only `reset` may clear the event."""

    def reset(self) -> None:
        """Clear the event, before a look at both streams."""
        super().clear()


def _signal(channel: paramiko.Channel, name: str) -> None:
    """Have sshd send a signal to the session's processes: a start file that never ends has no lifeline.

    sshd does so from OpenSSH 7.9 on, and not where it forces a command.
    """
    with suppress(OSError, EOFError, paramiko.SSHException):
        _request(channel, "signal", name, answered=False)


def _terminate(channels: Iterable[paramiko.Channel]) -> None:
    for channel in channels:
        _signal(channel, "TERM")


def _ended_by_signals(channel: paramiko.Channel) -> bool:
    """End a command as the lifeline does, by TERM and two seconds later KILL; return whether it has ended."""
    for name, wait_s in (("TERM", _TERM_S), ("KILL", _DRAIN_S)):
        _signal(channel, name)
        if channel.status_event.wait(wait_s):
            return True
    return False


def _request(channel: paramiko.Channel, kind: str, text: str, *, answered: bool) -> None:
    """Send a request of RFC 4254 with one text, without waiting for the answer."""
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string(kind)
    message.add_boolean(answered)
    message.add_string(text)
    channel.get_transport()._send_user_message(message)  # type: ignore[attr-defined]


def _send(channel: paramiko.Channel, call: Call) -> None:
    """Request the command; sshd closes the channel if it refuses."""
    _request(channel, "exec", command_line(call.argv, call.stdin_bytes), answered=True)
    # the watcher of a command without input reads lines and ignores them
    data = FOR_START_FILES if call.stdin is None else BEFORE_INPUT + call.stdin
    threading.Thread(target=_feed, args=(channel, data), daemon=True).start()


def _feed(channel: paramiko.Channel, data: bytes) -> None:
    """Send the input and leave the channel open: it is the lifeline."""
    sent = 0
    try:
        while sent < len(data):
            took = channel.send(data[sent : sent + _CHUNK_BYTES])
            if took == 0:
                return
            sent += took
    except (OSError, EOFError, paramiko.SSHException):  # the command has ended without reading it all
        return


def _follow(channel: paramiko.Channel, output: Output, deadline: float | None, start: Start) -> bool:
    """Collect output until the command ends (True), or its deadline or the time for its start is over (False)."""
    wake = _Wake()
    channel.in_buffer.set_event(wake)
    channel.in_stderr_buffer.set_event(wake)
    quiet_since: float | None = None
    while True:
        wake.reset()
        closed = channel.closed or channel.eof_received
        got = _drain(channel, output, start)
        now = monotonic()
        ended = channel.status_event.is_set()
        if (closed and ended) or channel.closed:
            _drain(channel, output, start)
            output.add("stdout", start.held())
            return True
        if ended:
            quiet_since = now if got or quiet_since is None else quiet_since
            if now - quiet_since > _DRAIN_S:
                output.add("stdout", start.held())
                return True
        elif start.is_late or (deadline is not None and now >= deadline):
            return False
        wake.wait(_POLL_S if deadline is None or ended else max(0.0, min(_POLL_S, deadline - now)))


def _drain(channel: paramiko.Channel, output: Output, start: Start) -> bool:
    got = False
    while channel.recv_ready():
        output.add("stdout", start.passed(channel.recv(_CHUNK_BYTES)))
        got = True
    while channel.recv_stderr_ready():
        output.add("stderr", channel.recv_stderr(_CHUNK_BYTES))
        got = True
    return got
