"""Following the output of a job that Slurm runs, through lost connections, until Slurm has ended it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodectl.common import bounded_json
from nodectl.common.documents import values_of
from nodectl.jobs.follow import Back, Event, Line, Trouble
from nodectl.jobs.nodes import NONSENSE
from nodectl.jobs.rows import LogRow
from nodectl.jobs.slurm.login import Login
from nodectl.payload.common.frames import Reader

_RETRY_S = 2.0
_TRIES = 30
_MOST_FRAMES = 32
BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Say which lines: the last `tail` of each file, those of `files` (a node's place, or `batch`), or of one rank."""

    tail: int | None = None
    files: tuple[str, ...] | None = None
    local_rank: int | None = None

    def request(self, offsets: Mapping[str, int]) -> dict[str, object]:
        """Return it as the login host takes it; what was read before is not asked for again."""
        files = None if self.files is None else list(self.files)
        return {"offsets": dict(offsets), "tail": self.tail, "files": files, "local_rank": self.local_rank}


def follow(login: Login, job_id: str, wanted: Wanted, *, once: bool = False) -> Iterator[Event]:
    """Events until the job has ended (`once`: what is there now), or the login host has not answered for a minute."""
    reader = _Reader(login, job_id, wanted, once)
    threading.Thread(target=reader.run, daemon=True).start()  # daemon: a dead host must not keep us
    try:
        while (event := reader.events.get()) is not None:
            yield from event
    finally:
        reader.over.set()


@dataclass
class _Reader:
    """Reads the stream in a thread; None is the last of its events."""

    login: Login
    job_id: str
    wanted: Wanted
    once: bool
    over: threading.Event = field(default_factory=threading.Event)
    events: queue.Queue[list[Event] | None] = field(default_factory=lambda: queue.Queue(_MOST_FRAMES))
    offsets: dict[str, int] = field(default_factory=dict)
    frames: Reader = field(default_factory=Reader)
    ended: bool = False
    tries: int = 0

    def run(self) -> None:
        """Read until the job's end, however many connections it takes."""
        while not self.over.is_set() and self.tries < _TRIES:
            self.frames = Reader()
            self.tries += 1
            why = self.login.stream(
                self.job_id, "once" if self.once else "follow", self.wanted.request(self.offsets), self._take
            )
            if self.ended:
                self._put([Back(self.login.host.name)])
                break
            self._put([Trouble(self.login.host.name, why or "it gave no answer")])
            if self.once:
                break
            self.over.wait(_RETRY_S)
        self._put(None)

    def _take(self, stream: str, data: bytes) -> None:
        if stream != "stdout":
            return
        try:
            for text in self.frames.feed(data):
                self._take_frame(*values_of(LogRow, [bounded_json.loads(text)], extra="ignore"))
        except ValueError as error:
            self._put([Trouble(self.login.host.name, f"{NONSENSE}: {error}")])

    def _take_frame(self, frame: LogRow) -> None:
        self.tries = 0
        if "end" in frame:
            self.ended = True
        elif "text" in frame:
            host, text = frame.get("host", ""), frame["text"]
            *whole, rest = text.split("\n")
            lines: list[Event] = [Line(host, line) for line in whole]
            self._put([*lines, *([Line(host, rest, goes_on=True)] if rest else [])])
            self.offsets[frame.get("file", "")] = frame.get("offset", 0)

    def _put(self, message: list[Event] | None) -> None:
        while not self.over.is_set():
            try:
                self.events.put(message, timeout=0.5)
                return
            except queue.Full:
                continue
