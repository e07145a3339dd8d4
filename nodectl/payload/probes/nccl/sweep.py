"""Measures collectives over sizes; all ranks take the same decisions, so that none waits for another for ever."""

import argparse
import time
from typing import Any, Dict, List, Optional, Tuple

from ...common.events import first_line, say
from .group import BUFFERS, Case, Group
from .log import Log

MAX_ITERATIONS = 1000
# a sweep up to the memory's limit ends where one operation takes longer: what comes would take twice that
LONGEST_S = 4.0
# an operation of a size that nobody asked for takes no longer
CARRIED_S = 1.0
# of the memory that is free: what a size that was asked for may need, and what a sweep leaves to others on processors
FREE_PART, SHARED_PART = 0.8, 0.25
# where the time is limited: what is tried, unsaid, before a size of which no smaller one tells, and how far one tells
FIRST_BYTES, STEP = 1 << 20, 64
# of larger messages the GPU needs longer than torch needs to hand one over
DISPATCH_BYTES = 1 << 20
UNSUPPORTED_WORDS = ("not implemented", "not support", "unsupported", "Unsupported", "no backend")
NO_ROOM_WORDS = ("out of memory", "allocate memory", "not enough memory")


def predicted_s(size: int, last: Tuple[int, float]) -> float:
    """Return the seconds of one operation by the last one that was measured; all ranks predict the same."""
    return last[1] * size / last[0]


class CutError(Exception):
    """The sweep of a collective ends here, for a reason that all ranks know."""


class Sweep:
    """All cases of one run."""

    def __init__(self, group: Group, options: argparse.Namespace, log: Optional[Log], began: float) -> None:
        self.group, self.options, self.log = group, options, log
        # of all, and of the collective that is measured: each has its part of what the ones before left
        self.ends = began + options.deadline if options.deadline else None
        self.part_ends = self.ends
        # of the last case: its size, the seconds of an operation, and those besides what was timed
        self.seen: Optional[Tuple[int, float, float]] = None
        self.sizes = [int(size) for size in options.sizes.split(",")]

    def run(self) -> None:
        """Measure every collective at every size."""
        free = self.group.least(self.group.free_bytes(self.group.neighbours()) / BUFFERS)
        limit = FREE_PART * free
        # a GPU is the probe's alone, the memory of a machine is not
        sizes = self._grown(limit if self.group.device.type == "cuda" else SHARED_PART * free)
        last: Dict[str, Tuple[int, float]] = {}
        collectives = self.options.collectives.split(",")
        for number, collective in enumerate(collectives):
            if self.ends is not None:
                now = time.monotonic()
                self.part_ends = now + max(0.0, self.ends - now) / (len(collectives) - number)
            self.seen = None
            for asked in sizes:
                size = self._carried(asked, last.get(collective))
                once = self._tried(collective, size, limit) if size else None
                if once is None:
                    break
                last[collective] = size, once
        self.part_ends, self.seen = self.ends, None
        for case in self.options.more.split(",") if self.options.more else []:
            collective, _, size_text = case.partition(":")
            self._of_a_floor(collective, int(size_text), limit, last.get(collective))

    def _carried(self, size: int, last: Optional[Tuple[int, float]]) -> int:
        """Return a quarter, and so on, where an operation of a usual size would take too long; 0 where none is left."""
        if last is None or not self.options.usual:
            return size
        while size > last[0] and predicted_s(size, last) > CARRIED_S:
            size //= 4
        return size if size > last[0] else 0

    def _of_a_floor(self, collective: str, size: int, limit: float, last: Optional[Tuple[int, float]]) -> None:
        """Measure a floor's size; one without room, or for which the network is too slow, is no fault of anything."""
        reason = "there is room for %d bytes" % limit if size > limit else ""
        if not reason and last is not None and predicted_s(size, last) > CARRIED_S:
            reason = "an operation would take %.1f s" % predicted_s(size, last)
        if reason:
            self._say_once(event="left", collective=collective, asked_bytes=size, reason=reason)
        else:
            self._tried(collective, size, limit)

    def _grown(self, limit: float) -> List[int]:
        sizes = list(self.sizes)
        while self.options.grow and sizes[-1] * self.options.grow <= limit:
            sizes.append(sizes[-1] * self.options.grow)
        return sizes

    def _tried(self, collective: str, size: int, limit: float) -> Optional[float]:
        """How long an operation takes; None where larger sizes of this collective are not worth a try."""
        case = {"collective": collective, "asked_bytes": size}
        try:
            if size > limit:
                raise CutError("no room: the ranks have memory for %d bytes" % limit)
            once = self._measured(collective, size)
        except CutError as error:
            self._say_once(event="cut", reason=str(error), **case)
            return None
        except RuntimeError as error:
            # every rank has the same backend, so all pass over it together
            if not any(word in str(error) for word in UNSUPPORTED_WORDS):
                raise
            self._say_once(event="unsupported", text=first_line(error), **case)
            return None
        if self.options.grow and once > LONGEST_S and size >= self.sizes[-1]:
            reason = "one operation takes %.0f s here: larger ones were not tried" % once
            self._say_once(event="cut", reason=reason, collective=collective, asked_bytes=size * self.options.grow)
            return None
        return once

    def _say_once(self, **event: Any) -> None:
        if self.group.rank == 0:
            say(**event)

    def _measured(self, collective: str, size: int) -> float:
        """Warm up and check, time the repetitions, check again; how long one operation takes."""
        group, options = self.group, self.options
        self._require(0.0)
        self._require_room_in_time(collective, size)
        began = time.monotonic()
        case = self._built(collective, size)
        if self.log is not None:
            self.log.resume()
        wrong = group.checked(case)
        chosen = None
        if self.log is not None:
            self.log.pause()
            # the only operation since: which one a line is of, NCCL before 2.23 does not tell
            chosen = self.log.chosen()
        once = group.largest(group.timed(case, 1))
        self._require(once * (options.repetitions + 1), once)
        iterations = max(1, min(MAX_ITERATIONS, int(options.seconds / max(once, 1e-9))))
        seconds = [group.timed(case, iterations) for _ in range(options.repetitions)]
        dispatch = group.dispatched(case) if size < DISPATCH_BYTES else None
        wrong += group.checked(case)
        self.seen = size, once, max(0.0, time.monotonic() - began - iterations * sum(seconds))
        say(
            event="times",
            collective=collective,
            asked_bytes=size,
            size_bytes=case.size_bytes,
            rank=group.rank,
            wrong=wrong,
            iterations=iterations,
            chosen=chosen,
            dispatch_s=dispatch,
            seconds=[round(took, 9) for took in seconds],
        )
        return once

    def _built(self, collective: str, size: int) -> Case:
        case: Optional[Case] = None
        try:
            case = self.group.cases.case(collective, size)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not any(word in str(error) for word in NO_ROOM_WORDS):
                raise
        if self.group.least(float(case is not None)) < 1 or case is None:
            raise CutError("no room: a rank could not allocate its buffers")
        return case

    def _require_room_in_time(self, collective: str, size: int) -> None:
        """Raise CutError where the time is limited and the case would take longer, by what smaller sizes took."""
        if self.part_ends is None:
            return
        while self.seen is None or size > STEP * self.seen[0]:
            step = FIRST_BYTES if self.seen is None else STEP * self.seen[0]
            if step >= size and self.seen is None:
                return
            operation_s = self.seen[1] * STEP if self.seen else 0.0
            self._require(2 * operation_s, operation_s)
            self._tried_unsaid(collective, step)
        seen, once, besides_s = self.seen
        operation_s = once * size / seen
        timed_s = self.options.repetitions * max(operation_s, self.options.seconds)
        self._require(timed_s + besides_s * max(1.0, size / seen), operation_s)

    def _tried_unsaid(self, collective: str, size: int) -> None:
        """Measure what an operation of that size takes, and what else a case does: it is checked twice."""
        began = time.monotonic()
        case = self._built(collective, size)
        self.group.checked(case)
        checked_s = self.group.largest(time.monotonic() - began)
        once = self.group.largest(self.group.timed(case, 1))
        self.seen = size, once, 2 * checked_s + once
        self._require(0.0)

    def _require(self, seconds: float, operation_s: float = 0.0) -> None:
        if self.part_ends is None:
            return
        late = time.monotonic() + seconds > self.part_ends
        if self.group.largest(float(late)):
            longest = self.group.largest(operation_s)
            why = ": an operation takes about %.3g s" % longest if longest else ""
            raise CutError("the time is over for it and larger ones" + why)
