"""A fleet for tests of a trial's course: settings and speeds on paper, a clock of its own, hosts that can be lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult

HOSTS = (Host("a", "192.0.2.1", 22, "root"), Host("b", "192.0.2.2", 22, "root"))


@dataclass
class PaperFleet:
    """`speeds` maps a profile to its speed; `events` is what happened, in order."""

    speeds: Mapping[str, float]
    noise: float = 0.005
    turn_s: float = 2.0
    put_s: float = 3.0
    broken: frozenset[str] = frozenset()
    unmeasurable: frozenset[str] = frozenset()
    lost_after: int | None = None
    hosts: tuple[Host, ...] = HOSTS
    findings: tuple[Finding, ...] = ()
    on: str = "own"
    now_s: float = 0.0
    measured: int = 0
    events: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    on_turn: Callable[[int], None] = lambda _: None
    chance: random.Random = field(default_factory=lambda: random.Random(3))

    def clock(self) -> float:
        return self.now_s

    def put_on(self, profile: str) -> tuple[Finding, ...]:
        self.now_s += self.put_s
        self.events.append(f"put {profile}")
        if profile in self.broken:
            return (Finding("b", "trial", Status.FAILED, profile, actual="kernel_settings: no such key"),)
        self.on = profile
        return ()

    def lost(self) -> dict[str, str]:
        gone = self.lost_after is not None and self.measured > self.lost_after
        return {"b": "no answer for 60 s"} if gone else {}

    def probe(self, *_: object) -> ProbeResult:
        """A Probe by signature."""
        self.now_s += self.turn_s
        self.measured += 1
        self.events.append(f"measure {self.on}")
        self.on_turn(self.measured)
        if self.on in self.unmeasurable:
            return ProbeResult(findings=(Finding("a", "tcp", Status.FAILED, "a -> b", actual="connection refused"),))
        value = self.speeds[self.on] * (1 + self.chance.gauss(0, self.noise))
        given = {"streams": 1, "duration_s": 2}
        return ProbeResult((Measurement("tcp", ("a", "b"), value, "Gbit/s", "a -> b", conditions=given),))

    @contextmanager
    def arm(self) -> Iterator[Any]:
        """Hosts that are armed by a line in `events`."""
        self.now_s += self.put_s
        self.events.append("arm")
        try:
            yield self
        finally:
            self.on = "own"
            self.events.append("put back")
