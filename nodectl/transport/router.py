"""Chooses a host's transport: SSH, or this machine (`ansible_connection=local`); both use the lifeline."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
from functools import cached_property
from time import monotonic
from typing import IO, TYPE_CHECKING

from nodectl.errors import UsageError
from nodectl.model.result import CommandResult
from nodectl.transport.base import Call, CallTransport, Output, Transport
from nodectl.transport.lifeline import wrapped

if TYPE_CHECKING:
    from nodectl.transport.ssh import SshTransport


def open_transport(replay: str | None = None) -> Transport:
    """Return the transport for a run of nodectl; it opens connections when they are first used."""
    if replay is not None:
        raise UsageError("--replay reads a recording, and this command needs the hosts themselves", "leave it out")
    return Router()


class Router(CallTransport):
    """Sends each host's commands to the transport that its inventory names."""

    def __init__(self) -> None:
        self._local = LocalTransport()

    @cached_property
    def _ssh(self) -> SshTransport:
        from nodectl.transport.ssh import SshTransport

        return SshTransport()

    def call(self, call: Call) -> CommandResult:
        """Run the command by the transport of its host."""
        return (self._local if call.host.connection == "local" else self._ssh).call(call)

    def close(self) -> None:
        """Close the transports."""
        self._local.close()
        if "_ssh" in self.__dict__:
            self._ssh.close()


_CHUNK_BYTES = 65536
# a daemon that was left behind may hold the pipes open: the command's own output has arrived by now
_DRAIN_S = 0.5


class LocalTransport(CallTransport):
    """Runs commands as children of this process, each in its own session."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def call(self, call: Call) -> CommandResult:
        """Run the command here; it starts at once."""
        output, deadline = Output(call), call.deadline()
        try:
            process = _start(call)
        except (OSError, ValueError) as error:
            return output.lost(f"cannot start /bin/sh: {error}")
        self._running.add(process)
        try:
            if not _follow(process, output, deadline):
                _kill_group(process)
                return output.overran()
            status = process.wait()
            return output.ran(status if status >= 0 else 128 - status)
        finally:
            self._running.discard(process)
            _close(process)

    def close(self) -> None:
        """Kill the process groups of commands that still run."""
        for process in list(self._running):
            _kill_group(process)


def _start(call: Call) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        wrapped(call.argv, call.stdin_bytes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    if call.stdin:
        threading.Thread(target=_feed, args=(process, call.stdin), daemon=True).start()
    return process


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Send the input and leave the pipe open: it is the lifeline."""
    assert process.stdin is not None  # noqa: S101 - Popen was given PIPE
    try:
        process.stdin.write(data)
        process.stdin.flush()
    except (OSError, ValueError):  # the command has ended without reading it all
        return


def _follow(process: subprocess.Popen[bytes], output: Output, deadline: float | None) -> bool:
    """Collect output until the command ends (True) or the deadline is over (False)."""
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            selector.register(pipe, selectors.EVENT_READ, name)  # type: ignore[arg-type]
        ended_at: float | None = None
        while selector.get_map():
            now = monotonic()
            if deadline is not None and now >= deadline and process.poll() is None:
                return False
            if ended_at is None and process.poll() is not None:
                ended_at = now
            if ended_at is not None and now - ended_at > _DRAIN_S:
                return True
            _drain(selector, output, 0.1 if deadline is None else max(0.0, min(0.1, deadline - now)))
    return _ends_by(process, deadline)


def _drain(selector: selectors.BaseSelector, output: Output, wait_s: float) -> None:
    for key, _ in selector.select(wait_s):
        pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
        data = os.read(pipe.fileno(), _CHUNK_BYTES)
        if data:
            output.add(key.data, data)
        else:
            selector.unregister(pipe)


def _ends_by(process: subprocess.Popen[bytes], deadline: float | None) -> bool:
    try:
        process.wait(None if deadline is None else max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Send TERM, then KILL; the group's leader is our child and not reaped, so its pid cannot be reused."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or number is signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return
        _ends_by(process, monotonic() + 2)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # input that nobody read is still in the buffer
                continue
