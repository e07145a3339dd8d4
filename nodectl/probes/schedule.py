"""Runs a probe's parts in parallel and estimates the time that is left; Ctrl-C ends them by closing the transport."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Protocol, TypeVar

from nodectl.common.units import time_text
from nodectl.probes.base import Note, ProbeResult
from nodectl.probes.lost import Watched, keeping
from nodectl.transport.base import Transport

# an announced time is not corrected while it is right within this fraction
_RIGHT = 0.1


class Pace:
    """Estimates the time of `parts` of about equal length; `planned_s` is the estimate that was announced before."""

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
        """Note that this many parts have ended; after the last there is no estimate."""
        if 0 < parts < self._parts:
            took_s = self.took_s()
            self.expect(took_s, took_s * (self._parts - parts) / parts)

    def expect(self, took_s: float, left_s: float) -> None:
        """Announce the estimate if it differs from the last one by more than a tenth."""
        whole_s = took_s + left_s
        with self._turn:
            if self._said_s is not None and abs(whole_s - self._said_s) <= _RIGHT * self._said_s:
                return
            self._said_s = whole_s
        self._note(f"{self._what}: about {time_text(left_s)} left")

    def took_s(self) -> float:
        """Return the seconds since it began."""
        return self._clock() - self._began


# how long programs that lost their connection may take to end
_LAST_WORDS_S = 4.0

T = TypeVar("T")
R = TypeVar("R")


def at_once(transport: Transport, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Run `work` on all items at the same time; return the results in the items' order."""
    if not items:
        return []
    pool = ThreadPoolExecutor(len(items))
    running = [pool.submit(work, item) for item in items]
    try:
        return [future.result() for future in running]
    except BaseException:
        _end(transport, running)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end(transport: Transport, running: Iterable[Future[R]]) -> None:
    """End the programs on the hosts by closing the transport, and wait a moment for their results."""
    transport.close()
    for future in running:
        future.cancel()
    wait(running, _LAST_WORDS_S)


def together(transport: Transport, items: Sequence[T], work: Callable[[T], ProbeResult]) -> ProbeResult:
    """Run `work` on all items at the same time; return the sum of the results."""
    return _sum(at_once(transport, items, keeping(transport, work)))


def in_rounds(
    transport: Transport,
    rounds: Sequence[Sequence[T]],
    work: Callable[[T], ProbeResult],
    probe: str,
    note: Note,
    planned_s: float | None = None,
) -> ProbeResult:
    """Run `work` on the items of each round at once; return the sum of the results.

    `note` announces each round, and the time that is left if it differs from the `planned_s` of all.
    """
    result = ProbeResult()
    pace = Pace(probe, len(rounds), note, planned_s)
    for number, items in enumerate(rounds, start=1):
        note(f"{probe}: round {number} of {len(rounds)}")
        result += together(transport, items, work)
        pace.done(number)
    return result


def _sum(results: Iterable[ProbeResult]) -> ProbeResult:
    return sum(results, ProbeResult())


class OnMachine(Protocol):
    """A thing that is measured on one machine; hosts of a lab, or containers, may share one."""

    @property
    def machine(self) -> str:
        """The machine's id: two with the same would disturb each other."""
        ...


M = TypeVar("M", bound=OnMachine)


def by_machine(
    transport: Transport,
    items: Sequence[M],
    work: Callable[[M], ProbeResult],
    forks: int,
    pace: Pace | None = None,
) -> ProbeResult:
    """Run `work` on every item: up to `forks` machines at once, the items of one machine in turn; return the sum.

    `pace` has as many parts as there are `turns`.
    """
    machines = sorted(_machines(items).values(), key=len, reverse=True)
    kept = keeping(transport, work)
    result, before = ProbeResult(), 0

    def in_turn(sharing: Sequence[M]) -> ProbeResult:
        total = ProbeResult()
        for number, item in enumerate(sharing, start=1):
            total += kept(item)
            if isinstance(transport, Watched) and transport.closed:
                # the run was ended: what is left cannot be measured, and there is no time to tell
                break
            # of the machines measured at once, the one with most hosts reports the progress
            if pace is not None and len(sharing) == most:
                pace.done(before + number)
        return total

    for start in range(0, len(machines), forks):
        at_the_same_time = machines[start : start + forks]
        most = max(map(len, at_the_same_time))
        result += _sum(at_once(transport, at_the_same_time, in_turn))
        before += most
    return result


def turns(items: Sequence[OnMachine], forks: int) -> int:
    """Return how many measurements `by_machine` makes one after the other."""
    sizes = sorted((len(sharing) for sharing in _machines(items).values()), reverse=True)
    return sum(sizes[::forks])


def _machines(items: Sequence[M]) -> dict[str, list[M]]:
    machines: dict[str, list[M]] = defaultdict(list)
    for item in items:
        machines[item.machine].append(item)
    return machines
