"""File work beside the heartbeats: a thread that writes the newest state and reads logs, however long a disk takes."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

EVERY_S = 2.0
_CLOSE_S = 10.0
_RETRY_S = 1.0

State = Dict[str, Any]
News = Callable[[], None]
Work = Callable[[], Optional[News]]


class Clerk:
    """Does what it is asked in order; of states that wait to be written, only the newest."""

    def __init__(
        self, write: Callable[[State], None], wake: Callable[[], None], tend: Callable[[], None] = lambda: None
    ) -> None:
        """`tend` is called every EVERY_S, and at the end."""
        self._write, self._wake, self._tend = write, wake, tend
        self._work: queue.SimpleQueue[Optional[Work]] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._newest: State = {}
        self._written: State = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; what is forked after that may use no stream and no lock of Python's that this thread uses."""
        self._thread.start()

    def save(self, state: State) -> None:
        """Have a state written, unless a newer one comes before its turn."""
        self._newest = state
        self._work.put(self._save)

    def ask(self, work: Work) -> None:
        """Have something done; what it returns is among `news` then, for the caller's thread to run."""
        self._work.put(work)

    def news(self) -> List[News]:
        """Return what has come back since the last call."""
        return [self._news.get() for _ in range(self._news.qsize())]

    def close(self) -> None:
        """Wait until all is done, but not for a disk that hangs."""
        self._work.put(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        next_s = time.monotonic()
        while True:
            try:
                work = self._work.get(timeout=max(0.0, next_s - time.monotonic()))
                if work is None:
                    break
                self._do(work)
            except queue.Empty:
                next_s = time.monotonic() + EVERY_S
                self._do(self._tend)
        self._do(self._tend)

    def _do(self, work: Work) -> None:
        try:
            news = work()
        except Exception:  # the supervisor lives on, whatever a disk or a log does
            sys.excepthook(*sys.exc_info())
            return
        if news is not None:
            self._news.put(news)
            self._wake()

    def _save(self) -> None:
        state = self._newest
        if state is self._written:
            return
        try:
            self._write(state)
            self._written = state
        except OSError as error:
            _log(f"the state cannot be written: {error}\n")
            time.sleep(_RETRY_S)
            self._work.put(self._save)


def _log(text: str) -> None:
    """Into supervisor.log, where its disk takes it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
