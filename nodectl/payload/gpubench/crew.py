"""One process a GPU, all loaded at the same moment: each says that it is ready, and is told to go when all are."""

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set

Say = Callable[[Dict[str, Any]], None]
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
# loaded before anything forks
_LIBC = ctypes.CDLL(None)


def say(event: Dict[str, Any]) -> None:
    # one write a line: lines of several processes share the pipe
    os.write(1, (json.dumps(event) + "\n").encode())


def wait_for_others() -> None:
    """In a member: ready; returns when all the others are, ends the process where nobody is there to say so."""
    say({"event": "waiting"})
    if not sys.stdin.readline():
        sys.exit(1)


def nobody_to_wait_for() -> None:
    """For a single device."""


class Crew:
    """Members by GPU; `play` hands on what they say, with the GPU's number."""

    def __init__(self, argv: Callable[[int], List[str]], gpus: List[int]) -> None:
        self._heard: "queue.Queue[Any]" = queue.Queue()
        self._members: Dict[int, "subprocess.Popen[bytes]"] = {}
        try:
            for gpu in gpus:
                self._members[gpu] = subprocess.Popen(
                    argv(gpu), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_die_with_parent
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
                    gpu, line = self._heard.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    for gpu in sorted(self._alive):
                        relay({"event": "error", "gpu": gpu, "text": "GPU %d: no end within %.0f s" % (gpu, seconds)})
                    return False
                if line is None:
                    well = self._ended(gpu, relay) and well
                else:
                    self._told(gpu, line, relay)
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
        for line in self._members[gpu].stdout or ():
            self._heard.put((gpu, line))
        self._heard.put((gpu, None))

    def _told(self, gpu: int, line: bytes, relay: Say) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # some library's own words
            return
        if not isinstance(event, dict):
            return
        if event.get("event") == "waiting":
            self._waiting.add(gpu)
        else:
            event.setdefault("gpu", gpu)
            relay(event)

    def _ended(self, gpu: int, relay: Say) -> bool:
        self._alive.discard(gpu)
        self._waiting.discard(gpu)
        status = self._members[gpu].wait()
        if status < 0:  # a death that it could not tell of
            relay({"event": "error", "gpu": gpu, "text": "GPU %d: ended by signal %d" % (gpu, -status)})
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


def _die_with_parent() -> None:
    _LIBC.prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))


def error_text(error: Optional[BaseException]) -> str:
    """The first line of it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
