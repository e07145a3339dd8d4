"""How front and shards of the retrieval measurement talk: a token first, then requests and answers of fixed heads."""

import hmac
import socket
import struct
import time
from typing import NamedTuple, Optional

from ...common.sockets import family, receive, undelayed

# what front and shards greet each other with, before the token
GREETING = b"nodectl-retrieval/1\n"
# queries, dimension, k, rows to search from the shard's first (0: all); no queries: the time of a trip alone
REQUEST = struct.Struct("!IIIQ")
# queries, results of each, nanoseconds that the search took
ANSWER = struct.Struct("!IIQ")
END = 0xFFFFFFFF
MOST_BYTES = 1 << 30
HANDSHAKE_S = 5.0
# importing torch and making the table, on the slowest host
START_S = 300.0
RETRY_S = 0.05
EXCHANGE_S = 60.0
ITEM_BYTES = 4
RESULT_BYTES = 8 + ITEM_BYTES


class WireError(Exception):
    """The other end is none of ours, or has said what cannot be."""


class Request(NamedTuple):
    """A front's question; `data` are float32 values, a query after the other."""

    queries: int
    dim: int
    k: int
    rows: int
    data: bytearray


class Answer(NamedTuple):
    """A shard's answer: rows of the whole table (int64), then their scores (float32), `results` of each query."""

    queries: int
    results: int
    took_ns: int
    data: bytearray


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on this address alone."""
    server = socket.socket(family(address), socket.SOCK_STREAM)
    server.bind((address, port))
    server.listen(8)
    server.settimeout(START_S)
    return server


def admit(sock: socket.socket, token: bytes) -> bool:
    """Return whether the other end knows the token; it is greeted only if so."""
    undelayed(sock).settimeout(HANDSHAKE_S)
    try:
        greeting = bytes(receive(sock, len(GREETING) + len(token)))
    except OSError:
        return False
    if not hmac.compare_digest(greeting, GREETING + token):
        return False
    sock.sendall(GREETING)
    sock.settimeout(EXCHANGE_S)
    return True


def connect(address: str, port: int, source: str, token: bytes) -> socket.socket:
    """Return a connection to a shard that is ready, from the address on which this host is to be measured."""
    until = time.monotonic() + START_S
    while True:
        try:
            sock = socket.create_connection((address, port), HANDSHAKE_S, (source, 0))
            break
        except ConnectionRefusedError:  # it has not begun to listen
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
    undelayed(sock).settimeout(START_S)
    sock.sendall(GREETING + token)
    if bytes(receive(sock, len(GREETING))) != GREETING:
        raise WireError("something else answers on %s port %d" % (address, port))
    sock.settimeout(EXCHANGE_S)
    return sock


def send_request(sock: socket.socket, request: Request) -> None:
    """Send a request and its queries."""
    sock.sendall(REQUEST.pack(request.queries, request.dim, request.k, request.rows) + request.data)


def send_end(sock: socket.socket) -> None:
    """Tell the shard that no request comes any more."""
    sock.sendall(REQUEST.pack(END, 0, 0, 0))


def receive_request(sock: socket.socket) -> Optional[Request]:
    """Return None if the front has said that this was all."""
    queries, dim, k, rows = REQUEST.unpack(receive(sock, REQUEST.size))
    if queries == END:
        return None
    size = ITEM_BYTES * queries * dim
    if size > MOST_BYTES:
        raise WireError("a request of %d bytes" % size)
    return Request(queries, dim, k, rows, receive(sock, size))


def send_answer(sock: socket.socket, queries: int, results: int, took_ns: int, data: bytes) -> None:
    """Send scores and rows, with the time that they took."""
    sock.sendall(ANSWER.pack(queries, results, took_ns) + data)


def receive_answer(sock: socket.socket) -> Answer:
    """Return the answer that comes next; WireError where its sizes cannot be."""
    queries, results, took_ns = ANSWER.unpack(receive(sock, ANSWER.size))
    size = queries * results * RESULT_BYTES
    if size > MOST_BYTES:
        raise WireError("an answer of %d bytes" % size)
    return Answer(queries, results, took_ns, receive(sock, size))
