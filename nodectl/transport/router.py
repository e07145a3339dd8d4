"""Chooses a host's transport: SSH, or this machine (`ansible_connection=local`); both use the lifeline."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import IO, TYPE_CHECKING

from nodectl.errors import UsageError
from nodectl.model.result import CommandResult
from nodectl.transport.base import Call, CallTransport, Output, Transport, wrapped

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
_TERM_S = 2.0


class LocalTransport(CallTransport):
    """Runs commands as children of this process, each in its own session."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def call(self, call: Call) -> CommandResult:
        """Run the command here; it starts at once."""
        output, argv = Output(call), wrapped(call.argv, call.stdin_bytes)
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except (OSError, ValueError) as error:
            return output.lost(f"cannot start /bin/sh: {error}")
        self._running.add(process)
        _start(_feed, process, call.stdin or b"")
        readers = [_start(_read, process.stdout, output, "stdout"), _start(_read, process.stderr, output, "stderr")]
        try:
            status = process.wait(call.timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            return output.overran()
        else:
            for reader in readers:
                reader.join(_DRAIN_S)
            return output.ran(status if status >= 0 else 128 - status)
        finally:
            self._running.discard(process)
            with suppress(OSError):  # input that nobody read is still in the buffer
                process.stdin.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Kill the process groups of commands that still run."""
        for process in list(self._running):
            _kill_group(process)


def _start(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Send the input and leave the pipe open: it is the lifeline."""
    with suppress(OSError, ValueError):  # the command has ended without reading it all
        process.stdin.write(data)  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]


def _read(pipe: IO[bytes], output: Output, stream: str) -> None:
    with pipe:
        while data := os.read(pipe.fileno(), _CHUNK_BYTES):
            output.add(stream, data)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Send TERM, then KILL; the group's leader is our child and not reaped, so its pid cannot be reused."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or number is signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_S)
