"""Recordings judged on all processors: each worker reads, judges and drops one host after the other."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from nodectl.health.judging import Order, Seen, seen
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult

One = Callable[[Host, Sequence[Command]], Recording | CommandResult]
# with fewer a second process is not worth its start
_FEW = 24
_CHUNK = 8
# workers are forked: they find here what need not be sent to them
_work: tuple[One, Sequence[Order]] | None = None


def judge_all(one: One, orders: Sequence[Order]) -> Iterator[Seen]:
    """Each order's host, in their order."""
    processes = min(len(os.sched_getaffinity(0)), len(orders) // _FEW + 1)
    if processes < 2:
        yield from (seen(order, one(order.host, order.commands)) for order in orders)
        return
    global _work
    _work = one, orders
    try:
        # what is here now is not for the workers' collectors to copy
        gc.freeze()
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_calm) as pool:
            yield from pool.map(_judged, range(len(orders)), chunksize=_CHUNK)
    finally:
        _work = None
        gc.unfreeze()


def _calm() -> None:
    # what a host leaves behind has no cycles: looking for some costs a tenth, and finds nothing
    gc.set_threshold(200_000, 20, 20)


def _judged(index: int) -> Seen:
    if _work is None:
        raise RuntimeError("a worker was started without its orders")
    one, orders = _work
    order = orders[index]
    return seen(order, one(order.host, order.commands))
