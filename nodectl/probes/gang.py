"""Programs that only work together, one a host: when one fails the others are ended, and the one to blame is told."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.probes.events import Event, Events, run_program, terminate
from nodectl.transport.base import Transport

# a failure seen from elsewhere arrives first at times: wait a moment for the one that caused it
_GRACE_S = 2.0
# hosts that do not end in this time after they were told to are not waited for
_END_S = 15.0
_KILL_S = 5.0


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


def play(
    transport: Transport,
    members: Sequence[Member],
    timeout_s: float,
    on_event: Callable[[Member, Event], None] | None = None,
) -> list[Played]:
    """Run all members at once, to the end of all or the failure of one; in the members' order."""
    ended: queue.SimpleQueue[tuple[int, CommandResult]] = queue.SimpleQueue()
    events = [Events(partial(on_event, member) if on_event else None) for member in members]
    for index, member in enumerate(members):
        run = threading.Thread(target=_run, args=(transport, index, member, timeout_s, events[index], ended))
        run.daemon = True  # a cut host holds its thread until the deadline: the process need not wait for it
        run.start()
    results = _gather(ended, len(members), time.monotonic() + timeout_s + _END_S, until_failure=True)
    stopped: set[int] = set()
    if len(results) < len(members):
        results |= _gather(ended, len(members) - len(results), time.monotonic() + _GRACE_S)
        stopped = set(range(len(members))) - set(results)
        for index in stopped:
            # the process number is of a run that has not ended, so it cannot be another's
            for started in events[index].of("started")[:1]:
                terminate(transport, members[index].host, started["pid"], _KILL_S)
        results |= _gather(ended, len(stopped), time.monotonic() + _END_S)
    return [
        Played(member, results.get(index), events[index], index in stopped and index in results)
        for index, member in enumerate(members)
    ]


def culprits(played: Sequence[Played]) -> list[Played]:
    """Return the members that failed by themselves, else those that saw another fail; empty if all went well."""
    failed = [member for member in played if not member.ok]
    return [member for member in failed if not member.blames_peer] or [
        member for member in failed if not member.was_ended
    ]


def _run(
    transport: Transport,
    index: int,
    member: Member,
    timeout_s: float,
    events: Events,
    ended: "queue.SimpleQueue[tuple[int, CommandResult]]",
) -> None:
    try:
        done, _ = run_program(
            transport,
            member.host,
            member.module,
            member.args,
            timeout_s=timeout_s,
            stdin=member.stdin,
            python=member.python,
            events=events,
        )
    except Exception as error:  # the gang must hear of it, or it would wait for ever
        reason = f"{type(error).__name__}: {error}"
        done = CommandResult(member.host.name, (), Outcome.UNREACHABLE, None, "", "", 0.0, reason)
    ended.put((index, done))


def _gather(
    ended: "queue.SimpleQueue[tuple[int, CommandResult]]", count: int, until: float, *, until_failure: bool = False
) -> dict[int, CommandResult]:
    """Up to `count` results that arrive by then."""
    results: dict[int, CommandResult] = {}
    while len(results) < count:
        try:
            index, done = ended.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        results[index] = done
        if until_failure and not done.ok:
            break
    return results
