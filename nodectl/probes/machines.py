"""Hosts that are one machine (containers, a lab) are measured in turn, machines at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from nodectl.probes.base import ProbeResult
from nodectl.probes.parallel import at_once
from nodectl.transport.base import Transport

T = TypeVar("T")


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
