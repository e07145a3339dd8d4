"""Hosts that answer as a test tells them to, in the place of payload programs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import encode

HOSTS = tuple(Host(f"node{n:02}", f"192.0.2.{n}") for n in range(1, 5))
ENDPOINT = {
    "event": "endpoint",
    "address": "192.0.2.1",
    "interface": "eth0",
    "mtu": 1500,
    "free_port": 29500,
    "iperf3": "3.12",
    "torch": "2.7.0+cpu",
    "gpus": 0,
}


@dataclass
class Answer:
    """What one program prints and how it ends."""

    events: Sequence[dict[str, Any]] = ()
    status: int = 0
    stderr: str = ""
    outcome: Outcome = Outcome.RAN
    error: str = ""
    after_s: float = 0.0


def silent(reason: str = "no route to host") -> Answer:
    """A host that cannot be asked."""
    return Answer(outcome=Outcome.UNREACHABLE, error=reason)


@dataclass
class Fleet:
    """`answers` gets the host, the module and its arguments."""

    answers: Callable[[str, str, Sequence[str]], Answer]
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    killed: list[tuple[str, str]] = field(default_factory=list)
    closed: bool = False

    def run(self, host: Host, argv: Sequence[str], **_: Any) -> CommandResult:
        """Only `kill` is run without a payload."""
        self.killed.append((host.name, argv[-1]))
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.0)

    def close(self) -> None:
        """As a transport does at the end."""
        self.closed = True

    def payload(
        self, _: object, host: Host, module: str, args: Sequence[str], *, on_output: Any, **__: Any
    ) -> CommandResult:
        """In the place of run_payload."""
        self.asked.append((host.name, module, tuple(args)))
        answer = self.answers(host.name, module, args)
        for event in answer.events:
            on_output("stdout", encode(event))
        if answer.stderr:
            on_output("stderr", answer.stderr.encode())
        waited = 0.0
        while waited < answer.after_s and host.name not in {name for name, _ in self.killed}:
            time.sleep(0.02)
            waited += 0.02
        status = answer.status if answer.outcome is Outcome.RAN else None
        return CommandResult(host.name, (module,), answer.outcome, status, "", "", 0.0, answer.error)


def play(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str, str, Sequence[str]], Answer]) -> Fleet:
    """A fleet whose payload programs are scripted."""
    fleet = Fleet(answers)
    monkeypatch.setattr("nodectl.probes.events.run_payload", fleet.payload)
    return fleet
