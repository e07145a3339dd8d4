"""A thread that writes the newest state and reads logs, so that a slow disk never delays the heartbeats."""

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
    """Does work in the order of the requests; of states waiting to be written, only the newest is."""

    def __init__(self, write: Callable[[State], None], wake: Callable[[], None], tend: Work = lambda: None) -> None:
        """Take the functions to call: `tend` is called every EVERY_S, and at the end."""
        self._write, self._wake, self._tend = write, wake, tend
        self._work: queue.SimpleQueue[Optional[Work]] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._newest: State = {}
        self._written: State = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread; processes forked later must not use Python streams or locks that it uses."""
        self._thread.start()

    def save(self, state: State) -> None:
        """Queue a state to be written; a newer one replaces it while it waits."""
        self._newest = state
        self._work.put(self._save)

    def ask(self, work: Work) -> None:
        """Queue `work`; the function it returns appears in `news`, to be called in the caller's thread."""
        self._work.put(work)

    def news(self) -> List[News]:
        """Return the functions that finished work has returned since the last call."""
        return [self._news.get() for _ in range(self._news.qsize())]

    def close(self) -> None:
        """Wait until all work is done; a disk that hangs is not waited for."""
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
            with contextlib.suppress(OSError):
                sys.stderr.write(f"the state cannot be written: {error}\n")
                sys.stderr.flush()
            time.sleep(_RETRY_S)
            self._work.put(self._save)
