"""A pair waits for its hosts and for nobody else; a host is never in two pairs, and keeps the order of the rounds."""

import threading
import time
from typing import Any

import pytest

from nodectl.probes.rounds import all_pairs
from nodectl.probes.schedule import flowing


class Transport:
    """Only its end matters here."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("count", [3, 8])
def test_no_host_is_in_two_pairs_and_each_keeps_its_order(count: int) -> None:
    rounds, busy, lock = all_pairs(range(count)), set[int](), threading.Lock()
    order: dict[int, list[tuple[int, int]]] = {host: [] for host in range(count)}

    def work(pair: tuple[int, int]) -> tuple[int, int]:
        with lock:
            assert not busy & set(pair)
            busy.update(pair)
            for end in pair:
                order[end].append(pair)
        time.sleep(0.002 * (sum(pair) % 3))
        with lock:
            busy.difference_update(pair)
        return pair

    transport: Any = Transport()
    begun: list[int] = []
    in_order = [pair for each in rounds for pair in each]
    assert flowing(transport, rounds, work, begun.append) == in_order
    assert begun == list(range(len(rounds))) and not transport.closed
    assert order == {host: [pair for pair in in_order if host in pair] for host in range(count)}


def test_a_slow_pair_holds_up_its_own_hosts_alone() -> None:
    free = threading.Event()

    def work(pair: tuple[str, str]) -> str:
        if pair == ("a", "b"):
            assert free.wait(10), "the others waited for the slow pair"
        if pair == ("d", "e"):
            free.set()
        return "".join(pair)

    rounds = [[("a", "b"), ("c", "d")], [("d", "e"), ("a", "c")]]
    transport: Any = Transport()
    assert flowing(transport, rounds, work, lambda _: None) == ["ab", "cd", "de", "ac"]
