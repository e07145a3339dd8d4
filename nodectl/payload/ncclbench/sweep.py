"""Measures collectives over sizes; all ranks take the same decisions, so that none waits for another for ever."""

import argparse
import json
import os
import time
from typing import Any, List, Optional

from .cases import BUFFERS, Case
from .log import Log
from .ranks import Ranks

MAX_ITERATIONS = 1000
# a sweep up to the memory's limit ends where one operation takes longer: what comes would take twice that
LONGEST_S = 4.0
# of the memory that is free: what a size that was asked for may need, and what a sweep leaves to others on processors
FREE_PART, SHARED_PART = 0.8, 0.25
UNSUPPORTED_WORDS = ("not implemented", "not support", "unsupported", "Unsupported", "no backend")
NO_ROOM_WORDS = ("out of memory", "allocate memory", "not enough memory")


def say(**event: Any) -> None:
    # one write a line: lines of several ranks share the pipe
    os.write(1, (json.dumps(event) + "\n").encode())


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


class CutError(Exception):
    """The sweep of a collective ends here, for a reason that all ranks know."""


class Sweep:
    """All cases of one run."""

    def __init__(self, ranks: Ranks, options: argparse.Namespace, log: Optional[Log], began: float) -> None:
        self.ranks, self.options, self.log = ranks, options, log
        self.ends = began + options.deadline if options.deadline else None
        self.sizes = [int(size) for size in options.sizes.split(",")]

    def run(self) -> None:
        free = self.ranks.least(self.ranks.free_bytes(self.ranks.neighbours()) / BUFFERS)
        limit = FREE_PART * free
        # a GPU is the probe's alone, the memory of a machine is not
        sizes = self._grown(limit if self.ranks.device.type == "cuda" else SHARED_PART * free)
        for collective in self.options.collectives.split(","):
            for size in sizes:
                if not self._tried(collective, size, limit):
                    break

    def _grown(self, limit: float) -> List[int]:
        sizes = list(self.sizes)
        while self.options.grow and sizes[-1] * self.options.grow <= limit:
            sizes.append(sizes[-1] * self.options.grow)
        return sizes

    def _tried(self, collective: str, size: int, limit: float) -> bool:
        """Whether larger sizes of this collective are worth a try."""
        told = {"collective": collective, "asked_bytes": size}
        try:
            if size > limit:
                raise CutError("no room: the ranks have memory for %d bytes" % limit)
            once = self._measured(collective, size)
        except CutError as error:
            self._told_once(event="cut", reason=str(error), **told)
            return False
        except RuntimeError as error:
            # every rank has the same backend, so all pass over it together
            if not any(word in str(error) for word in UNSUPPORTED_WORDS):
                raise
            self._told_once(event="unsupported", text=first_line(error), **told)
            return False
        if self.options.grow and once > LONGEST_S and size >= self.sizes[-1]:
            reason = "one operation takes %.0f s here: larger ones were not tried" % once
            self._told_once(event="cut", reason=reason, collective=collective, asked_bytes=size * self.options.grow)
            return False
        return True

    def _told_once(self, **event: Any) -> None:
        if self.ranks.rank == 0:
            say(**event)

    def _measured(self, collective: str, size: int) -> float:
        """Warm up and check, time the repetitions, check again; how long one operation takes."""
        ranks, options = self.ranks, self.options
        self._require(0.0)
        case = self._built(collective, size)
        if self.log is not None:
            self.log.resume()
        wrong = ranks.checked(case)
        if self.log is not None:
            self.log.pause()
        once = ranks.largest(ranks.timed(case, 1))
        self._require(once * (options.repetitions + 1))
        iterations = max(1, min(MAX_ITERATIONS, int(options.seconds / max(once, 1e-9))))
        seconds = [ranks.timed(case, iterations) for _ in range(options.repetitions)]
        wrong += ranks.checked(case)
        say(
            event="times",
            collective=collective,
            asked_bytes=size,
            size_bytes=case.size_bytes,
            rank=ranks.rank,
            wrong=wrong,
            iterations=iterations,
            seconds=[round(each, 9) for each in seconds],
        )
        return once

    def _built(self, collective: str, size: int) -> Case:
        case: Optional[Case] = None
        try:
            case = self.ranks.cases.case(collective, size)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not any(word in str(error) for word in NO_ROOM_WORDS):
                raise
        if self.ranks.least(float(case is not None)) < 1 or case is None:
            raise CutError("no room: a rank could not allocate its buffers")
        return case

    def _require(self, seconds: float) -> None:
        if self.ends is None:
            return
        late = time.monotonic() + seconds > self.ends
        if self.ranks.largest(float(late)):
            raise CutError("the time was over")
