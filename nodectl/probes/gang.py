"""Programs that only work together, one a host: when one fails the others are ended, and the one to blame is told."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import host_finding
from nodectl.probes.events import Background, Events, failure, terminate
from nodectl.transport.base import Transport

# a failure seen from elsewhere arrives first at times: wait a moment for the one that caused it
_GRACE_S = 2.0
# hosts that do not end in this time after they were told to are not waited for
_END_S = 15.0
_KILL_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """One host's program and what it is given."""

    host: Host
    module: str
    args: tuple[str, ...]
    python: str
    stdin: bytes | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """Hold what became of one member: `done` is None if the host did not answer any more."""

    member: Member
    done: CommandResult | None
    events: Events
    was_ended: bool

    @property
    def ok(self) -> bool:
        """It did its part to the end."""
        return self.done is not None and self.done.ok

    @property
    def blames_peer(self) -> bool:
        """It failed because another one did, by its own word or because we ended it."""
        return self.was_ended or any(event.get("peer") for event in self.events.of("error"))


def play(transport: Transport, members: Sequence[Member], timeout_s: float) -> list[Played]:
    """Run all members at once, to the end of all or the failure of one; in the members' order."""
    running = [
        Background(transport, member.host, member.module, member.args, timeout_s, member.python, member.stdin)
        for member in members
    ]
    _wait(running, timeout_s + _END_S, until_failure=True)
    _wait(running, _GRACE_S)
    stopped = [program for program in running if program.done is None]
    for program in stopped:
        # the process number is of a run that has not ended, so it cannot be another's
        for started in program.events.of("started")[:1]:
            terminate(transport, program.host, started["pid"], _KILL_S)
    _wait(stopped, _END_S)
    return [
        Played(member, program.done, program.events, program in stopped and program.done is not None)
        for member, program in zip(members, running, strict=True)
    ]


def culprits(played: Sequence[Played]) -> list[Played]:
    """Return the members that failed by themselves, else those that saw another fail; empty if all went well."""
    failed = [member for member in played if not member.ok]
    return [member for member in failed if not member.blames_peer] or [
        member for member in failed if not member.was_ended
    ]


def _wait(running: Sequence[Background], seconds: float, *, until_failure: bool = False) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(program.done is None for program in running):
        if until_failure and any(program.done and not program.done.ok for program in running):
            return
        time.sleep(_POLL_S)


def failure_of(probe: str, played: Played) -> Finding:
    """Return what became of a member that did not do its part to the end."""
    host = played.member.host.name
    if played.done is None:
        return host_finding(probe, host, Status.UNKNOWN, "stopped answering while it was measured", "is its link up?")
    status = Status.FAILED if played.done.outcome is Outcome.RAN else Status.UNKNOWN
    return host_finding(probe, host, status, *failure(played.done, played.events))
