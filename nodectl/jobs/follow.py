"""Following a job's output on all hosts: whole lines as they come, through lost connections, until all have ended."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nodectl.common import bounded_json
from nodectl.jobs.nodes import MODULE, why
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import FrameError, Reader
from nodectl.transport.base import Transport
from nodectl.transport.payload import run_payload

_RETRY_S = 2.0
_SILENT_S = 6.0  # a follower speaks every 2 s at least
_LAST_CHANCE_S = 2.0
_ONCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output of a host."""

    host: str
    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A host's output cannot be read at the moment, and why."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class _Sign:
    """A host's reader has heard of it, or has come to the end."""

    host: str
    ended: bool = False


Event: TypeAlias = Line | Trouble
_Messages: TypeAlias = "queue.SimpleQueue[Line | Trouble | _Sign]"


def follow(
    transport: Transport, hosts: Sequence[Host], job_id: str, *, offset: int = 0, once: bool = False
) -> Iterator[Event]:
    """Events until the job has ended on every host that can be reached (`once`: what is there now).

    `offset` is where to begin in each host's output, negative from its end, in bytes. A host whose connection breaks
    is tried again every 2 s, for as long as others are still running.
    """
    messages: _Messages = queue.SimpleQueue()
    over = threading.Event()
    for host in hosts:
        reader = _Reader(transport, host, job_id, offset, once, messages, over)
        threading.Thread(target=reader.run, daemon=True).start()  # daemon: a dead host must not keep us
    try:
        yield from _collect(messages, [host.name for host in hosts])
    finally:
        over.set()


def _collect(messages: _Messages, names: list[str]) -> Iterator[Event]:
    heard = dict.fromkeys(names, time.monotonic())
    running, troubled = set(names), set[str]()
    while running:
        try:
            message = messages.get(timeout=0.5)
        except queue.Empty:
            message = None
        now = time.monotonic()
        match message:
            case _Sign(host, ended=True):
                running.discard(host)
            case Line(host) | _Sign(host):
                heard[host] = now
                troubled.discard(host)
            case Trouble(host) if host not in troubled:
                troubled.add(host)
                yield message
        if isinstance(message, Line):
            yield message
        for host in running - troubled:
            if now - heard[host] > _SILENT_S:
                troubled.add(host)
                yield Trouble(host, f"silent for {_SILENT_S:g} s")
        others_ended = running and len(running) < len(names) and running <= troubled
        if others_ended and now - max(heard[host] for host in running) > _SILENT_S + _LAST_CHANCE_S:
            return


@dataclass(slots=True)
class _Reader:
    """One host's stream, begun again where it broke."""

    transport: Transport
    host: Host
    job_id: str
    offset: int
    once: bool
    messages: _Messages
    over: threading.Event
    frames: Reader = field(default_factory=Reader)
    damage: str = ""
    ended: bool = False

    def run(self) -> None:
        """Read until the job's end, however many connections it takes."""
        mode = "once" if self.once else "follow"
        while not self.over.is_set():
            self.frames, self.damage = Reader(), ""
            done = run_payload(
                self.transport,
                self.host,
                MODULE,
                ["logs", self.job_id, mode, str(self.offset)],
                timeout_s=_ONCE_S if self.once else None,
                on_output=self._take,
            )
            if not self.ended:
                self.messages.put(Trouble(self.host.name, self._problem(done)))
            if self.ended or self.once or (done.outcome is Outcome.RAN and done.exit_status == 1):
                self.messages.put(_Sign(self.host.name, ended=True))
                return
            self.over.wait(_RETRY_S)

    def _take(self, stream: str, data: bytes) -> None:
        if stream != "stdout":
            return
        try:
            for text in self.frames.feed(data):
                self._take_text(text)
        except ValueError as error:
            self.damage = f"its answer cannot be read: {error}"

    def _problem(self, done: CommandResult) -> str:
        """Why the output did not come to its end."""
        if done.outcome is not Outcome.RAN or done.exit_status:
            return why(done)
        try:
            self.frames.end()
        except FrameError as error:
            return f"its answer cannot be read: {error}"
        return self.damage or "it gave no answer"

    def _take_text(self, text: bytes) -> None:
        document = bounded_json.loads(text)
        if "text" in document:
            self.offset = int(document["offset"])
            for line in str(document["text"]).removesuffix("\n").split("\n"):
                self.messages.put(Line(self.host.name, line))
        elif "end" in document:
            self.ended = True
        else:
            self.messages.put(_Sign(self.host.name))
