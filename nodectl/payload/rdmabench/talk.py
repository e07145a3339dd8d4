"""The two ends of a measurement speaking to each other: JSON messages, each with its length before it."""

import errno
import json
import socket
import struct
from typing import Any, Dict, Optional

LENGTH = struct.Struct("!I")
MOST_BYTES = 1 << 22
CONNECT_S = 8.0


class UnreachedError(Exception):
    """The other end was not reached: `why` is refused, no_answer, unreachable or other."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


def send(sock: socket.socket, message: Dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    sock.sendall(LENGTH.pack(len(data)) + data)


def receive(sock: socket.socket, timeout_s: float) -> Dict[str, Any]:
    """One message; OSError where the other end is gone or says nothing in this time."""
    sock.settimeout(timeout_s)
    (size,) = LENGTH.unpack(exactly(sock, LENGTH.size))
    if size > MOST_BYTES:
        raise ConnectionError("something else answers there")
    message: Dict[str, Any] = json.loads(exactly(sock, size).decode())
    return message


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the other end closed the connection")
        data += part
    return data


def tuned(sock: socket.socket) -> socket.socket:
    """A dead path is noticed in seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 15000)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def connect(address: str, port: int, source: Optional[str]) -> socket.socket:
    """UnreachedError says in one word what kept it from the other end."""
    where = "%s port %d" % (address, port)
    try:
        return tuned(socket.create_connection((address, port), CONNECT_S, (source, 0) if source else None))
    except socket.timeout:
        raise UnreachedError("no_answer", "no answer from %s within %g s" % (where, CONNECT_S)) from None
    except OSError as error:
        raise UnreachedError(why(error), "%s: %s" % (where, error.strerror or error)) from error


def why(error: OSError) -> str:
    """In one word."""
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "unreachable"
    # a rule that rejects with `admin-prohibited` (EACCES, EPERM) is seen as such
    return "no_answer" if error.errno == errno.ETIMEDOUT else "refused" if error.errno in (1, 13) else "other"
