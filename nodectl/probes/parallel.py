"""Runs a probe's parts at once; Ctrl-C ends them by closing the transport."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
