"""Rounds of pairs without waiting for a round's slowest: a pair begins as soon as both its hosts are free."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from nodectl.transport.base import Transport

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


def flowing(
    transport: Transport,
    rounds: Sequence[Sequence[tuple[T, T]]],
    work: Callable[[tuple[T, T]], R],
    begun: Callable[[int], None],
) -> list[R]:
    """`work` on every pair, a host's in the order of the rounds and one at a time; results in the rounds' order.

    `begun` is told each round's number, from 0, when its first pair begins. Ctrl-C ends all by closing the transport.
    """
    pairs = [(number, pair) for number, each in enumerate(rounds) for pair in each]
    if not pairs:
        return []
    waiting: dict[T, deque[int]] = defaultdict(deque)
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
