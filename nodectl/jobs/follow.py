"""Following a job's output on all hosts: whole lines as they come, through lost connections, until all have ended."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nodectl.common import bounded_json
from nodectl.common.documents import values_of
from nodectl.jobs.nodes import UNREADABLE, why
from nodectl.jobs.rows import LogRow
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import FrameError, Reader
from nodectl.transport.base import Transport
from nodectl.transport.payload import run_payload

_MODULE = "jobs.logs"
_RETRY_S = 2.0
_SIGN_S = 1.0
_SILENT_S = 6.0  # a follower sends something every 2 s at least
_LAST_CHANCE_S = 4.0  # patience with hosts that were silent when the last other host ended: all may have been frozen
_ALL_SILENT_S = 60.0
_ONCE_SILENT_S = 30.0
_MOST_FRAMES = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's output; `local_rank` is None for the launcher's, which may name the rank itself."""

    host: str
    text: str
    local_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A number of bytes of older output that the host has already deleted."""

    host: str
    local_rank: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A host's output cannot be read at the moment, and why."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Back:
    """A host that was in trouble answers again."""

    host: str


@dataclass(frozen=True, slots=True)
class _Sign:
    host: str
    ended: bool = False


Event: TypeAlias = Line | Dropped | Trouble | Back
# events are the lines of one frame; the queue is bounded, so that a slow reader slows the hosts down
_Messages: TypeAlias = "queue.Queue[list[Line] | Dropped | Trouble | _Sign]"


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a host's output: its first line, its last `tail` lines, or `since_s` ago; maybe of one rank."""

    tail: int | None = None
    local_rank: int | None = None
    since_s: float | None = None


def follow(
    transport: Transport, hosts: Sequence[Host], job_id: str, *, start: Start | None = None, once: bool = False
) -> Iterator[Event]:
    """Yield events until the job has ended on every host that answers (`once`: of the present output only)."""
    messages: _Messages = queue.Queue(_MOST_FRAMES)
    over = threading.Event()
    for host in hosts:
        reader = _Reader(transport, host, job_id, start or Start(), once, messages, over)
        threading.Thread(target=reader.run, daemon=True).start()  # daemon: a dead host must not keep us
    try:
        yield from _collect(messages, [host.name for host in hosts], _ONCE_SILENT_S if once else _ALL_SILENT_S)
    finally:
        over.set()


def _collect(messages: _Messages, names: list[str], patience_s: float) -> Iterator[Event]:
    heard_s = dict.fromkeys(names, time.monotonic())
    running, troubled = set(names), set[str]()
    while running:
        try:
            message = messages.get(timeout=0.5)
        except queue.Empty:  # no reader has anything more to report
            for host in running - troubled:
                if time.monotonic() - heard_s[host] > _SILENT_S:
                    troubled.add(host)
                    yield Trouble(host, f"silent for {_SILENT_S:g} s")
            if running <= troubled and _is_over(heard_s, running, patience_s):
                return
            continue
        match message:
            case _Sign(host, ended=True):
                heard_s[host] = time.monotonic()
                running.discard(host)
            case [Line(host), *_] | Dropped(host) | _Sign(host):
                heard_s[host] = time.monotonic()
                if host in troubled:
                    troubled.discard(host)
                    yield Back(host)
            case Trouble(host):
                if host not in troubled:
                    troubled.add(host)
                    yield message
        if isinstance(message, list):
            yield from message
        elif isinstance(message, Dropped):
            yield message


def _is_over(heard: dict[str, float], running: set[str], patience_s: float) -> bool:
    """Tell whether the hosts that still run have been silent for too long after the others ended to be waited for."""
    now_s = time.monotonic()
    if len(running) == len(heard):
        return now_s - max(heard.values()) > _SILENT_S + patience_s
    return now_s - max(heard[host] for host in running) > _SILENT_S and now_s - max(heard.values()) > _LAST_CHANCE_S


@dataclass(slots=True)
class _Reader:
    """Reads one host's stream, and reconnects where it broke."""

    transport: Transport
    host: Host
    job_id: str
    start: Start
    once: bool
    messages: _Messages
    over: threading.Event
    offsets: dict[str, int] = field(default_factory=dict)
    spoke_s: float = 0.0
    frames: Reader = field(default_factory=Reader)
    damage: str = ""
    ended: bool = False
    began_s: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Read until the job's end, however many connections it takes."""
        mode = "once" if self.once else "follow"
        while not self.over.is_set():
            self.frames, self.damage = Reader(), ""
            done = run_payload(
                self.transport,
                self.host,
                _MODULE,
                [self.job_id, mode, json.dumps(self._request())],
                timeout_s=None,
                bare=True,
                on_output=self._take,
            )
            if not self.ended:
                self._put(Trouble(self.host.name, self._why_ended_early(done)))
            if self.ended or self.once or (done.outcome is Outcome.RAN and done.exit_status == 1):
                self._put(_Sign(self.host.name, ended=True))
                return
            self.over.wait(_RETRY_S)

    def _take(self, stream: str, data: bytes) -> None:
        if stream != "stdout":
            return
        if time.monotonic() - self.spoke_s > _SIGN_S:  # a frame over a slow line takes longer than a host may be silent
            self.spoke_s = time.monotonic()
            self._put(_Sign(self.host.name))
        try:
            for text in self.frames.feed(data):
                self._take_text(text)
        except ValueError as error:
            self.damage = f"{UNREADABLE}: {error}"

    def _why_ended_early(self, done: CommandResult) -> str:
        if done.outcome is not Outcome.RAN or done.exit_status:
            return why(done)
        try:
            self.frames.end()
        except FrameError as error:
            return f"its answer cannot be read: {error}"
        return self.damage or "it gave no answer"

    def _take_text(self, text: bytes) -> None:
        (document,) = values_of(LogRow, [bounded_json.loads(text)], extra="ignore")
        if "text" in document:
            lines = document["text"].removesuffix("\n").split("\n")
            self._put([Line(self.host.name, line, document.get("rank")) for line in lines])
        elif "dropped" in document:
            self._put(Dropped(self.host.name, document.get("rank"), document["dropped"]))
        elif "offsets" in document:
            self.offsets.update(document["offsets"])
        elif "end" in document:
            self.ended = True
        if "offset" in document and "file" in document:
            self.offsets[document["file"]] = document["offset"]

    def _request(self) -> dict[str, object]:
        rank = {} if self.start.local_rank is None else {"local_rank": self.start.local_rank}
        if not self.offsets and self.start.tail is not None:
            return {"tail": self.start.tail, **rank}
        if not self.offsets and self.start.since_s is not None:
            return {"since_s": self.start.since_s + time.monotonic() - self.began_s, **rank}
        return {"offsets": self.offsets, **rank}

    def _put(self, message: list[Line] | Dropped | Trouble | _Sign) -> None:
        while not self.over.is_set():
            with contextlib.suppress(queue.Full):
                self.messages.put(message, timeout=0.5)
                return


# gloo and the store ask DNS for a peer's name, which a cluster's network often lacks (EAI_AGAIN, EAI_NONAME)
_NO_NAME = re.compile(r"socket\.cpp:\d+\] \[c10d\] The hostname of the client socket cannot be retrieved\. err=-[23]\b")
# torchrun on a host whose ranks have all succeeded waits for the others, and the first host's store may go before that
_BARRIER = re.compile(r"([A-Z]\d{4} [\d:.]+ +\d+ [^\]]+\]) Error waiting on exit barrier\b")


class Noise:
    """Recognises harmless messages line by line; a record of torchrun's log has several lines with one beginning."""

    def __init__(self) -> None:
        self._records: dict[str, str] = {}

    def holds(self, source: str, text: str) -> bool:
        """Return whether this line of `source` (a host, or a rank of it) is one of them."""
        if barrier := _BARRIER.match(text):
            self._records[source] = barrier[1]
        begun = self._records.get(source)
        if begun is not None and text.startswith(begun):
            return True
        self._records.pop(source, None)
        return _NO_NAME.search(text) is not None
