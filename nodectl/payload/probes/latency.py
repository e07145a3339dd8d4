"""Round trips over one TCP connection between `serve` and `measure`: each end asks in turn, and the other echoes."""

import argparse
import contextlib
import gc
import socket
import struct
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ..common import program
from ..common.frames import say
from ..common.sockets import await_client, connect, fill, receive_message, send_message

# a message: whether another follows
MESSAGE = struct.Struct("!?")
BYTES = 64
WARM_UP = 200
# of the time of a run, so that a slow path leaves some for what is measured
WARM_UP_PART = 0.1
CONNECT_S = 5.0
IDLE_S = 15.0
# one exchange: a path on which packets are lost takes some retransmissions
EXCHANGE_S = 5.0


def exchanges(sock: socket.socket, most: int, seconds: float, last: bool) -> List[int]:
    """Return round trips in ns, as many as fit into the time; `last` tells the other end that these were all."""
    trips: List[int] = []
    ask, answer = bytearray(BYTES), bytearray(BYTES)
    now = time.monotonic_ns
    ends = now() + int(seconds * 1e9)
    more = True
    while more:
        more = len(trips) + 1 < most and now() < ends
        MESSAGE.pack_into(ask, 0, more or not last)
        began = now()
        sock.sendall(ask)
        fill(sock, answer)
        trips.append(now() - began)
    return trips


def ask(sock: socket.socket, options: argparse.Namespace) -> Dict[str, Any]:
    """One run of this end: warmed up, then measured."""
    exchanges(sock, WARM_UP, options.seconds * WARM_UP_PART, last=False)
    trips = sorted(exchanges(sock, options.exchanges, options.seconds, last=True))
    shares = (("min", 0), ("p50", 0.5), ("p99", 0.99), ("max", 1))
    return {"count": len(trips), "us": {name: us(trips, share) for name, share in shares}}


def us(ordered: Sequence[int], share: float) -> float:
    """Return the quantile `share` of ordered nanoseconds, in microseconds."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000, 3)


def echo(sock: socket.socket) -> None:
    """Answer until the other end says that these were all."""
    message = bytearray(BYTES)
    more = True
    while more:
        fill(sock, message)
        (more,) = MESSAGE.unpack_from(message)
        sock.sendall(message)


@contextlib.contextmanager
def exchanging(sock: socket.socket) -> Iterator[socket.socket]:
    """Hold the connection, closed at the end; RuntimeError if an exchange on it takes too long."""
    with sock:
        sock.settimeout(EXCHANGE_S)
        try:
            yield sock
        except socket.timeout:
            raise RuntimeError("an exchange took longer than %g s: is the path cut?" % EXCHANGE_S) from None


def serve(options: argparse.Namespace) -> None:
    """Answer the one client, and ask in turn."""
    with exchanging(await_client(options.address, options.port, IDLE_S)) as sock:
        send_message(sock, receive_message(sock))
        for _ in range(options.runs):
            echo(sock)
            send_message(sock, ask(sock, options))


def measure(options: argparse.Namespace) -> None:
    """Ask, answer, and say the runs of both ends."""
    with exchanging(connect(options.address, options.port, options.bind, CONNECT_S)) as sock:
        # an answer that is none says that something else listens there
        send_message(sock, "latency")
        receive_message(sock)
        for _ in range(options.runs):
            say(event="run", reverse=False, **ask(sock, options))
            echo(sock)
            say(event="run", reverse=True, **receive_message(sock))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `serve` or `measure`."""
    parser, ends = program.commands(serve, measure)
    program.add_addresses(ends)
    for end in ends:
        end.add_argument("--runs", type=int, required=True, help="of each end")
        end.add_argument("--exchanges", type=int, required=True, help="at most, of one run")
        end.add_argument("--seconds", type=float, required=True, help="at most, of one run")
    gc.disable()
    return program.run(parser, argv)
