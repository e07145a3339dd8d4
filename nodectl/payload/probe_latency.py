"""Round trips over one TCP connection: `serve` answers, `measure` connects; each end asks in turn and the other echoes.

JSON lines; Python 3.8, standard library.
"""

import argparse
import errno
import gc
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# a message: whether another follows, and the moment at which it was echoed, by the clock of who echoes
MESSAGE = struct.Struct("!?q")
BYTES = 64
WARM_UP = 200
# of the time of a run, so that a slow path leaves some for what is measured
WARM_UP_PART = 0.1
CONNECT_S = 5.0
IDLE_S = 15.0
# one exchange: a path on which packets are lost takes some retransmissions
EXCHANGE_S = 5.0
LENGTH = struct.Struct("!I")
MOST_BYTES = 1 << 16


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def tuned(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(EXCHANGE_S)
    return sock


def receive(sock: socket.socket, buffer: bytearray) -> None:
    """Fill the buffer."""
    view = memoryview(buffer)
    got = 0
    while got < len(buffer):
        size = sock.recv_into(view[got:])
        if not size:
            raise ConnectionResetError(errno.ECONNRESET, "the other host closed the connection")
        got += size


def send_json(sock: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    sock.sendall(LENGTH.pack(len(data)) + data)


def receive_json(sock: socket.socket) -> Any:
    head = bytearray(LENGTH.size)
    receive(sock, head)
    (size,) = LENGTH.unpack(head)
    if size > MOST_BYTES:
        raise RuntimeError("something else answers there")
    body = bytearray(size)
    receive(sock, body)
    return json.loads(bytes(body))


def exchanges(sock: socket.socket, most: int, seconds: float, last: bool) -> List[Tuple[int, int]]:
    """(round trip, way there) in ns, as many as fit into the time; `last` tells the other end that these were all."""
    found: List[Tuple[int, int]] = []
    ask, answer = bytearray(BYTES), bytearray(BYTES)
    now = time.monotonic_ns
    ends = now() + int(seconds * 1e9)
    more = True
    while more:
        more = len(found) + 1 < most and now() < ends
        MESSAGE.pack_into(ask, 0, more or not last, 0)
        began = now()
        sock.sendall(ask)
        receive(sock, answer)
        ended = now()
        found.append((ended - began, MESSAGE.unpack_from(answer)[1] - began))
    return found


def ask(sock: socket.socket, options: argparse.Namespace, same_clock: bool) -> Dict[str, Any]:
    """One run of this end: warmed up, then measured."""
    exchanges(sock, WARM_UP, options.seconds * WARM_UP_PART, last=False)
    found = exchanges(sock, options.exchanges, options.seconds, last=True)
    trips = sorted(trip for trip, _ in found)
    told = {name: us(trips, share) for name, share in (("min", 0), ("p50", 0.5), ("p99", 0.99), ("max", 1))}
    run: Dict[str, Any] = {"count": len(trips), "us": told, "one_way_us": None}
    if same_clock:
        there = sorted(way for _, way in found)
        back = sorted(trip - way for trip, way in found)
        run["one_way_us"] = [us(there, 0.5), us(back, 0.5)]
    return run


def us(ordered: Sequence[int], share: float) -> float:
    """The value at this share of the way through them, in microseconds."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000, 3)


def echo(sock: socket.socket) -> None:
    """Answer until the other end says that these were all."""
    message = bytearray(BYTES)
    more = True
    while more:
        receive(sock, message)
        (more, _) = MESSAGE.unpack_from(message)
        MESSAGE.pack_into(message, 0, more, time.monotonic_ns())
        sock.sendall(message)


def clock_id() -> str:
    """The same for all that share one monotonic clock: the containers of one machine."""
    try:
        machine = BOOT_ID.read_text().strip()
        offsets = Path("/proc/self/timens_offsets")
        return machine + (" ".join(offsets.read_text().split()) if offsets.exists() else "")
    except OSError:
        return ""


def serve(options: argparse.Namespace) -> None:
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.address, options.port))
        listening.listen(1)
        listening.settimeout(IDLE_S)
        say(event="listening", port=listening.getsockname()[1], pid=os.getpid())
        try:
            sock, _ = listening.accept()
        except socket.timeout:
            raise RuntimeError("no client came within %g s" % IDLE_S) from None
    with tuned(sock):
        own = clock_id()
        other = receive_json(sock)
        send_json(sock, own)
        for _ in range(options.runs):
            echo(sock)
            send_json(sock, ask(sock, options, bool(own) and own == other))


def connect(options: argparse.Namespace) -> socket.socket:
    source = (options.bind, 0) if options.bind else None
    try:
        return socket.create_connection((options.address, options.port), CONNECT_S, source)
    except socket.timeout:
        text = "no answer from %s port %d within %g s" % (options.address, options.port, CONNECT_S)
        raise RuntimeError(text) from None
    except OSError as error:
        text = "%s port %d: %s" % (options.address, options.port, error.strerror or error)
        raise RuntimeError(text) from error


def measure(options: argparse.Namespace) -> None:
    with tuned(connect(options)) as sock:
        own = clock_id()
        send_json(sock, own)
        same_clock = bool(own) and receive_json(sock) == own
        for _ in range(options.runs):
            say(event="run", reverse=False, **ask(sock, options, same_clock))
            echo(sock)
            say(event="run", reverse=True, **receive_json(sock))


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("serve", serve), ("measure", measure)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--address", required=True, help="to bind to, or to connect to")
        command.add_argument("--port", type=int, default=0)
        command.add_argument("--runs", type=int, required=True, help="of each end")
        command.add_argument("--exchanges", type=int, required=True, help="at most, of one run")
        command.add_argument("--seconds", type=float, required=True, help="at most, of one run")
        command.add_argument("--bind", help="the client's own address")
    options = parser.parse_args(argv)
    gc.disable()
    try:
        options.run(options)
    except socket.timeout:
        say(event="error", text="an exchange took longer than %g s: is the path cut?" % EXCHANGE_S)
        return 1
    except (RuntimeError, OSError, ValueError) as error:
        say(event="error", text=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
