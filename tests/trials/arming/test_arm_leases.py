"""Leases: what each answer of a guard means, and that one silent host holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import encode
from nodectl.transport.base import OnOutput
from nodectl.trials.arming import Leases

GOOD, OTHER = Host("gpu01", "192.0.2.1"), Host("gpu02", "192.0.2.2")


class Guards:
    """A transport behind which guards answer; `answer(host, beat)` is what one prints, or why there is nothing."""

    def __init__(self, answer: Callable[[Host, int], dict[str, Any] | str]) -> None:
        self.answer, self.beats = answer, {GOOD: 0, OTHER: 0}

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        assert argv[-2] == "/var/lib/nodectl/trials/t1" and timeout_s is not None
        self.beats[host] = int(argv[-1])
        said = self.answer(host, self.beats[host])
        if isinstance(said, str):
            return CommandResult(host.name, tuple(argv), Outcome.UNREACHABLE, None, "", "", 0.1, said)
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, encode(said).decode(), "", 0.1)

    def close(self) -> None:
        """Nothing is open."""


def armed(host: Host, beat: int) -> dict[str, Any]:
    return {"state": "armed", "seen": str(beat - 1) if beat > 1 else ""}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"state": "armed", "seen": ""}, ""),
        ({"state": "restored", "at": 1.7e9, "why": "no sign of life"}, "by itself at 2023-11-14 22:13:20 UTC: no sign"),
        ({"state": "restored", "at": "soon"}, "by itself at an unknown time"),
        ({"state": "restoring", "why": "w", "errors": []}, "by itself (w): under way"),
        ({"state": "restoring", "why": "w", "errors": ["disk full"]}, "by itself (w): disk full"),
        ({}, "another nodectl has taken the trial off"),
    ],
)
def test_what_a_guard_says(said: dict[str, Any], why: str) -> None:
    leases = Leases(Guards(lambda host, beat: said), [GOOD], "t1", 60)
    leases.beat([GOOD])
    assert why in leases.lost().get("gpu01", "") and bool(why) == bool(leases.lost())


def test_a_guard_that_has_acted_stays_lost_and_is_renewed_no_more() -> None:
    guards = Guards(lambda host, beat: {"state": "restored"} if beat == 2 else armed(host, beat))
    leases = Leases(guards, [GOOD], "t1", 0.2)
    leases.start([GOOD])
    until = time.monotonic() + 10
    while not leases.lost() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)
    assert "by itself" in leases.lost()["gpu01"] and guards.beats[GOOD] == 2


def test_silence_is_loss_after_half_the_lease_and_is_forgiven() -> None:
    silent = threading.Event()
    leases = Leases(Guards(lambda host, beat: "no route" if silent.is_set() else armed(host, beat)), [GOOD], "t1", 0.6)
    leases.beat([GOOD])
    silent.set()
    leases.beat([GOOD])
    assert leases.lost() == {} and "no route" in leases.silent()["gpu01"]
    time.sleep(0.4)
    assert "no route" in leases.lost()["gpu01"]
    silent.clear()
    leases.beat([GOOD])
    assert leases.lost() == {} and leases.silent() == {}


def test_a_host_that_hangs_holds_up_no_other() -> None:
    free = threading.Event()

    def answer(host: Host, beat: int) -> dict[str, Any] | str:
        if host is OTHER:
            free.wait(20)
        return armed(host, beat)

    guards = Guards(answer)
    leases = Leases(guards, [GOOD, OTHER], "t1", 0.4)
    leases.start([GOOD, OTHER])
    until = time.monotonic() + 15
    while guards.beats[GOOD] < 5 and time.monotonic() < until:
        time.sleep(0.01)
    leases.stop()
    free.set()
    assert guards.beats[GOOD] >= 5 and guards.beats[OTHER] == 1
