"""TCP between two programs: one waits for the other, and both send JSON messages, each with its length before it."""

import errno
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

from .frames import say


def family(address: str) -> socket.AddressFamily:
    """IPv6 or IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTEN, ESTABLISHED = "0A", "01"
_MAPPED = "::ffff:"
LENGTH = struct.Struct("!I")
MOST_BYTES = 1 << 22


class UnreachedError(RuntimeError):
    """The other end was not reached: `why` is refused, no_answer, unreachable or other."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


def await_client(address: str, port: int, idle_s: float) -> socket.socket:
    """Say `listening` with the port and this process, and accept one client; RuntimeError if none comes in time."""
    with socket.socket(family(address), socket.SOCK_STREAM) as server:
        # another server may listen on the same port afterwards: one hole in a firewall is enough
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(1)
        server.settimeout(idle_s)
        say(event="listening", port=server.getsockname()[1], pid=os.getpid())
        try:
            return undelayed(server.accept()[0])
        except socket.timeout:
            raise RuntimeError("no client came within %g s" % idle_s) from None


def connect(address: str, port: int, source: Optional[str], timeout_s: float) -> socket.socket:
    """Return a connection, from this address where one is given; UnreachedError says in one word what kept it away."""
    where = "%s port %d" % (address, port)
    try:
        return undelayed(socket.create_connection((address, port), timeout_s, (source, 0) if source else None))
    except socket.timeout:
        raise UnreachedError("no_answer", "no answer from %s within %g s" % (where, timeout_s)) from None
    except OSError as error:
        raise UnreachedError(why(error), "%s: %s" % (where, error.strerror or error)) from error


def why(error: OSError) -> str:
    """Return the error in one word, as in UnreachedError."""
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "unreachable"
    # a rule that rejects with `admin-prohibited` (EACCES, EPERM) is seen as such
    return "no_answer" if error.errno == errno.ETIMEDOUT else "refused" if error.errno in (1, 13) else "other"


def kernel_rows() -> Iterator[List[str]]:
    """Yield the fields of each TCP socket of this network namespace, as the kernel's tables have them."""
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        yield from map(str.split, lines)


def parsed(entry: str) -> Tuple[str, int]:
    """`0100007F:1F90` → 127.0.0.1 and 8080; the kernel writes words of 32 bit in its own byte order."""
    number, _, port = entry.partition(":")
    raw = b"".join(struct.pack("=I", int(number[at : at + 8], 16)) for at in range(0, len(number), 8))
    address = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    if address.startswith(_MAPPED) and "." in address:
        address = address[len(_MAPPED) :]
    return address, int(port, 16)


def undelayed(sock: socket.socket) -> socket.socket:
    """Return the socket, which now sends small messages at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def fill(sock: socket.socket, buffer: bytearray) -> None:
    """Receive until the buffer is full; ConnectionResetError if the other end closes before that."""
    view, received = memoryview(buffer), 0
    while received < len(buffer):
        size = sock.recv_into(view[received:])
        if not size:
            raise ConnectionResetError(errno.ECONNRESET, "the other end closed the connection")
        received += size


def receive(sock: socket.socket, size: int) -> bytearray:
    """So many bytes."""
    buffer = bytearray(size)
    fill(sock, buffer)
    return buffer


def send_message(sock: socket.socket, message: Any) -> None:
    """Send one JSON message."""
    data = json.dumps(message).encode()
    sock.sendall(LENGTH.pack(len(data)) + data)


def receive_message(sock: socket.socket) -> Any:
    """One JSON message; ConnectionError if it is longer than any that these programs send."""
    (size,) = LENGTH.unpack(receive(sock, LENGTH.size))
    if size > MOST_BYTES:
        raise ConnectionError("something else answers there")
    return json.loads(bytes(receive(sock, size)))
