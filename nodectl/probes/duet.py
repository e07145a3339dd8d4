"""A measurement between two hosts: a payload program that serves on one, and its other half on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodectl.model.finding import Finding
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import host_finding
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.events import Background, Events, failure, terminate
from nodectl.transport.base import Transport

LISTEN_S = 20.0
_STOP_S = 3.0
_POLL_S = 0.5

Pair = tuple[Endpoint, Endpoint]


@dataclass(frozen=True, slots=True)
class Duet:
    """How to play: `args` go to both ends, `more` to the client alone; each end has `deadline_s`."""

    module: str
    args: Sequence[str]
    port: int
    bind: bool
    deadline_s: float
    more: Sequence[str] = ()


@dataclass(slots=True)
class Played:
    """Hold what the client said and how it ended; without a server only `no_server`."""

    events: Events = field(default_factory=Events)
    done: CommandResult | None = None
    no_server: tuple[Status, str, str] | None = None

    @property
    def reason(self) -> tuple[str, str]:
        """(reason, remedy) of a client that failed."""
        return failure(self.done, self.events) if self.done is not None else ("", "")


def play(transport: Transport, pair: Pair, duet: Duet) -> Played:
    """Run the client on the first of the pair and the server on the second, which is ended if the client fails."""
    client, server = pair
    args = ["serve", "--address", server.address, "--port", str(duet.port), *duet.args]
    serving = Background(transport, server.host, duet.module, args, duet.deadline_s + LISTEN_S)
    listening = serving.events.wait("listening", LISTEN_S)
    if listening is None:
        return Played(no_server=_no_server(serving))
    asked = ["measure", "--address", server.address, "--port", str(listening["port"]), *duet.args, *duet.more]
    asked += ["--bind", client.address] if duet.bind else []
    asking = Background(transport, client.host, duet.module, asked, duet.deadline_s)
    played = Played(asking.events)
    # the client would see only after its own deadline that the server's host is lost
    while asking.done is None and not (serving.done and serving.done.outcome is Outcome.UNREACHABLE):
        played.events.wait("end", _POLL_S)
    if asking.done is None:
        return Played(played.events, no_server=_no_server(serving))
    played.done = asking.done
    if not played.done.ok:
        # it would end by itself, but only after a while
        terminate(transport, server.host, int(listening["pid"]), 10.0).join(_STOP_S)
    return played


def no_server_finding(probe: str, server: Endpoint, why: tuple[Status, str, str]) -> Finding:
    """Return a finding that blames the server's host."""
    status, reason, remedy = why
    actual = reason if status is Status.UNKNOWN else f"cannot listen: {reason}"
    return host_finding(probe, server.host.name, status, actual, remedy)


# words of a path that carries nothing
_CUT = ("No route", "unreachable", "no answer", "is the path cut", "did not end", "timed out")


def connection_remedy(reason: str) -> str:
    """Return what to do about a connection that was not made or broke."""
    if "refused" in reason:
        return "is a firewall between them? try --port with one that it lets through"
    if any(word in reason for word in _CUT):
        return "a firewall that drops packets, or no route: try --port, or name the network with --interface"
    return ""


def _no_server(serving: Background) -> tuple[Status, str, str]:
    if serving.done is None:
        return Status.UNKNOWN, f"no answer within {LISTEN_S:g} s", "is its link up?"
    status = Status.FAILED if serving.done.outcome is Outcome.RAN else Status.UNKNOWN
    return status, *failure(serving.done, serving.events)
