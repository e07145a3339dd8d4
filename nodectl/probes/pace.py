"""How long it still takes, by how long it took so far: said when it is no longer what was said before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from nodectl.common.units import time_text
from nodectl.probes.base import Note

# a time that was said stands while it is right within this part
_RIGHT = 0.1


class Pace:
    """The time of `parts` that take about as long each, from now on; `planned_s` is what was said of it."""

    def __init__(
        self,
        what: str,
        parts: int,
        note: Note,
        planned_s: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._what, self._parts, self._note, self._clock = what, parts, note, clock
        self._said_s = planned_s
        self._began = clock()
        self._turn = threading.Lock()

    def done(self, parts: int) -> None:
        """So many have ended by now; of the last there is nothing to say."""
        if 0 < parts < self._parts:
            self.expect(self._clock() - self._began, (self._clock() - self._began) * (self._parts - parts) / parts)

    def expect(self, took_s: float, left_s: float) -> None:
        """Say it, where it is news."""
        whole_s = took_s + left_s
        with self._turn:
            if self._said_s is not None and abs(whole_s - self._said_s) <= _RIGHT * self._said_s:
                return
            self._said_s = whole_s
        self._note(f"{self._what}: about {time_text(left_s)} more, {time_text(whole_s)} in all")

    def took_s(self) -> float:
        """The seconds since it began."""
        return self._clock() - self._began
