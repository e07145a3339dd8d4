"""Runs a probe's parts in parallel; Ctrl-C ends them by closing the transport."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from nodectl.probes.base import Note, ProbeResult
from nodectl.probes.lost import Watched, keeping
from nodectl.transport.base import Transport

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
        # the end of their connections ends the programs on the hosts
        transport.close()
        for future in running:
            future.cancel()
        wait(running, _LAST_WORDS_S)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def together(transport: Transport, items: Sequence[T], work: Callable[[T], ProbeResult]) -> ProbeResult:
    """Run `work` on all items at the same time; return the sum of the results."""
    return _sum(at_once(transport, items, keeping(transport, work)))


def in_rounds(
    transport: Transport, rounds: Sequence[Sequence[T]], work: Callable[[T], ProbeResult], probe: str, note: Note
) -> ProbeResult:
    """Run `work` on the items of each round at once; `note` announces each round. Return the sum of the results."""
    result = ProbeResult()
    for number, items in enumerate(rounds, start=1):
        note(f"{probe}: round {number} of {len(rounds)}")
        result += together(transport, items, work)
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


def by_machine(transport: Transport, items: Sequence[M], work: Callable[[M], ProbeResult], forks: int) -> ProbeResult:
    """Run `work` on every item: up to `forks` machines at once, the items of one machine in turn; return the sum."""
    machines = sorted(_machines(items).values(), key=len, reverse=True)
    kept = keeping(transport, work)

    def in_turn(sharing: Sequence[M]) -> ProbeResult:
        total = ProbeResult()
        for item in sharing:
            total += kept(item)
            if isinstance(transport, Watched) and transport.closed:
                # the run was ended: what is left cannot be measured
                break
        return total

    parts = [machines[start : start + forks] for start in range(0, len(machines), forks)]
    return _sum(result for part in parts for result in at_once(transport, part, in_turn))


def turns(items: Sequence[OnMachine], forks: int) -> int:
    """Return how many measurements `by_machine` makes one after the other."""
    sizes = sorted((len(sharing) for sharing in _machines(items).values()), reverse=True)
    return sum(sizes[::forks])


def _machines(items: Sequence[M]) -> dict[str, list[M]]:
    machines: dict[str, list[M]] = defaultdict(list)
    for item in items:
        machines[item.machine].append(item)
    return machines
