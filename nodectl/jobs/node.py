"""How the controller asks the nodes about jobs: one call of jobctl a host, answers read from JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

MODULE = "jobctl"


@dataclass(frozen=True, slots=True)
class Answers:
    """JSON lines by host that answered; `refused` could be asked and said no, `unreachable` could not be asked."""

    lines: Mapping[str, tuple[Mapping[str, Any], ...]]
    refused: Mapping[str, str] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> dict[str, str]:
        """Every host without an answer, with the reason."""
        return {**self.refused, **self.unreachable}


def ask(
    transport: Transport,
    hosts: Sequence[Host],
    args: Callable[[Host], Sequence[str]],
    *,
    forks: int,
    timeout_s: float,
    stdin: bytes | None = None,
) -> Answers:
    """`jobctl.py` with `args(host)` on every host at once."""

    def work(host: Host) -> CommandResult:
        return run_payload(transport, host, MODULE, list(args(host)), timeout_s=timeout_s, stdin=stdin)

    lines: dict[str, tuple[Mapping[str, Any], ...]] = {}
    refused, unreachable = {}, {}
    for host, result in fan_out(hosts, work, forks):
        if result.outcome is not Outcome.RAN:
            unreachable[host.name] = why(result)
        elif result.exit_status != 0:
            refused[host.name] = why(result)
        else:
            lines[host.name] = tuple(json.loads(line) for line in result.stdout.splitlines())
    return Answers(lines, refused, unreachable)


def why(result: CommandResult) -> str:
    """One line for why a host gave no answer."""
    if result.error:
        return result.error
    words = result.stderr.strip().splitlines()
    return words[-1] if words else f"exit status {result.exit_status}"
