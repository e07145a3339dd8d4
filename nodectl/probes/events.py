"""Payload programs on hosts, and the frames in which they speak, read while they run."""

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from nodectl.common import bounded_json
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import FrameError, Reader
from nodectl.transport.base import KEPT_BYTES, Transport
from nodectl.transport.payload import INSTALL_PYTHON, run_payload

Event = dict[str, Any]
# as shells tell of a signal in an exit status
_SIGNALLED = 128
_NO_PROGRAM = 127
_NOISE_BYTES = 64 << 10
_COMPLAINT_CHARS = 4096
_REMEDIES = {signal.SIGKILL: "the kernel does so where memory is short: see its log there"}


class Events:
    """Collects the events of one run, 16 MiB at most; give `add` to Transport.run as `on_output`."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        # the moment of the monotonic clock at which it said something last
        self.heard_at = 0.0
        self._noise = b""
        self._left_bytes = KEPT_BYTES
        self._reader = Reader(self._add_noise)
        self._arrived = threading.Condition()

    def add(self, stream: str, data: bytes) -> None:
        """Take output as it comes; what is no event is kept as noise, for the reason of a failure."""
        self.heard_at = time.monotonic()
        if stream != "stdout":
            self._add_noise(data)
            return
        try:
            texts = self._reader.feed(data)
        except FrameError as error:
            self._add_noise(f"\n{error}\n".encode())
            return
        for text in texts:
            self._left_bytes -= len(text)
            if self._left_bytes >= 0:
                self._text(text)
            else:
                self._add_noise(f"\nits answer is longer than {KEPT_BYTES >> 20} MiB\n".encode())

    def _add_noise(self, data: bytes) -> None:
        self._noise = (self._noise + data)[-_NOISE_BYTES:]

    def end(self) -> None:
        """End the run: wake all that wait for an event."""
        with self._arrived:
            self.all.append({"event": "end"})
            self._arrived.notify_all()

    def of(self, kind: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in list(self.all) if event["event"] == kind]

    def wait(self, kind: str, timeout_s: float | None) -> Event | None:
        """Return the first event of this kind; None if the run ended, or the time is over, without it."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self.of(kind) or self.of("end")), timeout_s)
        return next(iter(self.of(kind)), None)

    def complaint(self) -> str:
        """Return the last line that the program printed on stderr."""
        lines = self._noise.decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:_COMPLAINT_CHARS] if lines else ""

    def cut(self) -> str:
        """Return why what came last cannot be read; "" if it ended with a whole event."""
        try:
            self._reader.end()
        except FrameError as error:
            return f"its answer cannot be read: {error}"
        return ""

    def _text(self, text: bytes) -> None:
        try:
            event = bounded_json.loads(text)
        except ValueError as error:
            self._add_noise(f"\nits answer cannot be read: {error}\n".encode())
            return
        if isinstance(event, dict) and event.get("event") == "beat":
            return
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            with self._arrived:
                self.all.append(event)
                self._arrived.notify_all()


def run_program(
    transport: Transport,
    host: Host,
    module: str,
    args: Sequence[str],
    *,
    timeout_s: float | None,
    python: str | None = None,
    stdin: bytes | None = None,
    events: Events | None = None,
) -> tuple[CommandResult, Events]:
    """Run a payload program to its end: how it ended, and its events, which also arrive in `events` meanwhile."""
    events = events or Events()
    done = run_payload(
        transport, host, module, args, timeout_s=timeout_s, stdin=stdin, python=python, on_output=events.add
    )
    return done, events


class Background:
    """A payload program that runs in a thread of its own; `done` is None until it has ended."""

    def __init__(
        self,
        transport: Transport,
        host: Host,
        module: str,
        args: Sequence[str],
        timeout_s: float | None,
        python: str | None = None,
        stdin: bytes | None = None,
    ) -> None:
        self.host, self.events = host, Events()
        self.done: CommandResult | None = None

        def run() -> None:
            try:
                self.done, _ = run_program(
                    transport, host, module, args, timeout_s=timeout_s, python=python, stdin=stdin, events=self.events
                )
            except Exception as error:  # who waits for it must hear of it, or would wait for ever
                reason = f"{type(error).__name__}: {error}"
                self.done = CommandResult(host.name, (), Outcome.UNREACHABLE, None, "", "", 0.0, reason)
            finally:
                self.events.end()

        # a daemon: a host that is cut off holds it until its deadline, and nobody need wait for that
        threading.Thread(target=run, daemon=True).start()


def terminate(transport: Transport, host: Host, pid: int, timeout_s: float) -> threading.Thread:
    """Send SIGTERM to a program on a host; the thread that sends it ends with the answer or the time."""
    argv = ["kill", "-s", "TERM", str(pid)]
    thread = threading.Thread(target=transport.run, args=(host, argv), kwargs={"timeout_s": timeout_s}, daemon=True)
    thread.start()
    return thread


def failure(done: CommandResult, events: Events) -> tuple[str, str]:
    """(reason, remedy) of a payload run that failed, in its own words where it has some."""
    errors = events.of("error")
    if errors:
        return str(errors[0].get("text")), str(errors[0].get("remedy", ""))
    if done.outcome is not Outcome.RAN:
        return done.error or str(done.outcome), done.remedy
    complaint = events.cut() or events.complaint()
    try:
        number = signal.Signals((done.exit_status or 0) - _SIGNALLED)
    except ValueError:
        # a python3 that is there and starts nothing, as pyenv's if no version is chosen
        remedy = done.remedy or (INSTALL_PYTHON if done.exit_status == _NO_PROGRAM else "")
        return complaint or done.error or f"exit status {done.exit_status}", remedy
    # what it printed last need not be why, but a program that ends itself says it there
    last_line = f": {complaint}" if complaint and number is not signal.SIGKILL else ""
    return f"was ended by {number.name}{last_line}", done.remedy or _REMEDIES.get(number, "")
