"""One process a GPU, all loaded at the same moment: each says that it is ready, and is told to go when all are."""

import json
import queue
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Set

from ...common.events import say
from ...common.frames import Reader
from ...jobs.syscalls import die_with_parent

Say = Callable[..., None]


def wait_for_others() -> None:
    """In a member: ready; returns when all the others are, ends the process where nobody is there to say so."""
    say(event="waiting")
    if not sys.stdin.readline():
        sys.exit(1)


def nobody_to_wait_for() -> None:
    """For a single device."""


class Crew:
    """Members by GPU; `play` hands on what they say, with the GPU's number."""

    def __init__(self, argv: Callable[[int], List[str]], gpus: List[int]) -> None:
        self._lines: "queue.Queue[Any]" = queue.Queue()
        self._members: Dict[int, "subprocess.Popen[bytes]"] = {}
        try:
            for gpu in gpus:
                self._members[gpu] = subprocess.Popen(
                    argv(gpu), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent
                )
        except BaseException:
            self.end()
            raise
        self._waiting: Set[int] = set()
        self._alive = set(self._members)
        for gpu in self._members:
            threading.Thread(target=self._listen, args=(gpu,), daemon=True).start()

    def play(self, relay: Say, seconds: float) -> bool:
        """True if all ended well in this time; those that did not are killed, each with an error of its own."""
        until, well = time.monotonic() + seconds, True
        try:
            while self._alive:
                try:
                    gpu, line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    for gpu in sorted(self._alive):
                        relay(event="error", gpu=gpu, text="GPU %d: no end within %.0f s" % (gpu, seconds))
                    return False
                if line is None:
                    well = self._take_end(gpu, relay) and well
                else:
                    self._take_line(gpu, line, relay)
                self._go()
            return well
        finally:
            self.end()

    def end(self) -> None:
        for member in self._members.values():
            if member.poll() is None:
                member.kill()
            member.wait()

    def _listen(self, gpu: int) -> None:
        reader = Reader()
        for line in self._members[gpu].stdout or ():
            for text in reader.feed(line):
                self._lines.put((gpu, text))
        self._lines.put((gpu, None))

    def _take_line(self, gpu: int, line: bytes, relay: Say) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # some library's own words
            return
        if not isinstance(event, dict):
            return
        if event.get("event") == "waiting":
            self._waiting.add(gpu)
        else:
            relay(**{"gpu": gpu, **event})

    def _take_end(self, gpu: int, relay: Say) -> bool:
        self._alive.discard(gpu)
        self._waiting.discard(gpu)
        status = self._members[gpu].wait()
        if status < 0:  # a death that it could not tell of
            relay(event="error", gpu=gpu, text="GPU %d: ended by signal %d" % (gpu, -status))
        return status == 0

    def _go(self) -> None:
        if self._alive and self._waiting == self._alive:
            self._waiting = set()
            for gpu in self._alive:
                pipe = self._members[gpu].stdin
                try:
                    if pipe is not None:
                        pipe.write(b"go\n")
                        pipe.flush()
                except OSError:  # it has just died; its end is heard next
                    continue
