"""Runs a probe's parts at once; Ctrl-C ends them by closing the transport."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from nodectl.probes.base import ProbeResult
from nodectl.transport.base import Transport

T = TypeVar("T")
R = TypeVar("R")


def at_once(transport: Transport, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """`work` on every item, all at the same time; results in the items' order."""
    if not items:
        return []
    pool = ThreadPoolExecutor(len(items))
    try:
        return list(pool.map(work, items))
    except BaseException:
        transport.close()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


H = TypeVar("H", bound=Hashable)


def flowing(
    transport: Transport,
    rounds: Sequence[Sequence[tuple[H, H]]],
    work: Callable[[tuple[H, H]], R],
    begun: Callable[[int], None],
) -> list[R]:
    """`work` on every pair, a host's in the order of the rounds and one at a time; results in the rounds' order.

    `begun` is told each round's number, from 0, when its first pair begins. Ctrl-C ends all by closing the transport.
    """
    pairs = [(number, pair) for number, each in enumerate(rounds) for pair in each]
    if not pairs:
        return []
    waiting: dict[H, deque[int]] = defaultdict(deque)
    for index, (_, pair) in enumerate(pairs):
        for end in pair:
            waiting[end].append(index)
    ended: SimpleQueue[tuple[int, Future[R]]] = SimpleQueue()
    pool = ThreadPoolExecutor(max(map(len, rounds)))
    told = -1
    results: dict[int, R] = {}

    def begin(index: int) -> None:
        nonlocal told
        number, pair = pairs[index]
        if number > told:
            told = number
            begun(number)
        pool.submit(work, pair).add_done_callback(lambda done: ended.put((index, done)))

    def is_next(index: int) -> bool:
        return all(waiting[end][0] == index for end in pairs[index][1])

    try:
        for index in [index for index in range(len(pairs)) if is_next(index)]:
            begin(index)
        while len(results) < len(pairs):
            index, done = ended.get()
            results[index] = done.result()
            ends = pairs[index][1]
            for end in ends:
                waiting[end].popleft()
            for following in dict.fromkeys(waiting[end][0] for end in ends if waiting[end]):
                if is_next(following):
                    begin(following)
        return [results[index] for index in range(len(pairs))]
    except BaseException:
        transport.close()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def by_machine(
    transport: Transport,
    items: Sequence[T],
    machine_of: Callable[[T], str],
    work: Callable[[T], ProbeResult],
    forks: int,
) -> ProbeResult:
    """`work` on every item; as many machines at a time as `forks` says."""

    def in_turn(own: Sequence[T]) -> ProbeResult:
        result = ProbeResult()
        for item in own:
            result += work(item)
        return result

    listed = list(_machines(items, machine_of).values())
    result = ProbeResult()
    for start in range(0, len(listed), forks):
        for part in at_once(transport, listed[start : start + forks], in_turn):
            result += part
    return result


def turns(items: Sequence[T], machine_of: Callable[[T], str], forks: int) -> int:
    """How many measurements come one after the other."""
    sizes = sorted((len(own) for own in _machines(items, machine_of).values()), reverse=True)
    return sum(sizes[::forks])


def _machines(items: Sequence[T], machine_of: Callable[[T], str]) -> dict[str, list[T]]:
    machines: dict[str, list[T]] = defaultdict(list)
    for item in items:
        machines[machine_of(item)].append(item)
    return machines
