"""Leases: what each answer of a host means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.trials.arming import Leases

GOOD = Host("gpu01", "192.0.2.1")


class Hosts:
    """A transport whose hosts answer; `answer(host, beat)` is an exit status, or why there is none."""

    def __init__(self, answer: Callable[[Host, int], int | str]) -> None:
        self.answer, self.beats = answer, {GOOD: 0}

    def run(self, host: Host, argv: Sequence[str], *, timeout_s: float | None, **_: Any) -> CommandResult:
        assert argv[-1] == "/run/nodectl-trial/t1" and timeout_s is not None
        self.beats[host] += 1
        answer = self.answer(host, self.beats[host])
        if isinstance(answer, str):
            return CommandResult(host.name, tuple(argv), Outcome.UNREACHABLE, None, "", "", 0.1, answer)
        return CommandResult(host.name, tuple(argv), Outcome.RAN, answer, "", "", 0.1)

    def close(self) -> None:
        """Nothing is open."""


def until(holds: Callable[[], object]) -> bool:
    ends = time.monotonic() + 20
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return bool(holds())


def test_a_host_that_has_restored_itself_is_lost_and_renewed_no_more() -> None:
    hosts = Hosts(lambda host, beat: 9 if beat == 2 else 0)
    leases = Leases(hosts, [GOOD], "t1", 0.2)
    leases.start([GOOD])
    assert until(leases.lost)
    time.sleep(0.3)
    assert "by itself" in leases.lost()["gpu01"] and hosts.beats[GOOD] == 2


def test_silence_is_loss_after_half_the_lease_and_is_forgiven() -> None:
    silent = threading.Event()
    leases = Leases(Hosts(lambda host, beat: "no route" if silent.is_set() else 0), [GOOD], "t1", 0.6)
    leases.start([GOOD])
    silent.set()
    assert until(lambda: "no route" in leases.lost().get("gpu01", ""))
    silent.clear()
    assert until(lambda: not leases.lost())
    leases.stop()
