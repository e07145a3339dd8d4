"""Preflight on a node: `look REQUEST` answers facts as one JSON object, `listen` and `connect` try the way to a host.

Those two take a JSON request on standard input.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from typing import Any, Dict, List, Set, Tuple

from ...common.events import say
from ...common.sockets import family


def main(arguments: List[str]) -> int:
    """Do what the first word says; the answer is frames."""
    mode = arguments[0]
    if mode == "look":
        from .look import look

        say(**look(json.loads(arguments[1])))
    elif mode == "listen":
        listen(json.load(sys.stdin))
    else:
        say(**connect(json.load(sys.stdin)))
    return 0


_FIRST_RETRY_S, _RETRY_S = 0.02, 0.2  # the other side begins at the same moment
_TICK_S = 0.2
_ALIVE_S = 1.0
_MOST_CONNECTIONS = 512  # of more the oldest goes: select() takes no more files than 1024
_LEAST_ATTEMPTS = 4  # also of a host that is too busy to make more in its time


def listen(request: Dict[str, Any]) -> None:
    """Answer on both ports until as many addresses as expected have had both answers and hung up, or the time is over.

    Says that it listens, then each second how late it was to look (`late_s`, the worst): no answer of a listener that
    did not run for so long proves nothing. Ends when nobody reads that any more.
    """
    token = request["token"].encode()
    end_s = time.monotonic() + request["seconds"]
    tcp, udp = _bound(request, socket.SOCK_STREAM, "tcp_port"), _bound(request, socket.SOCK_DGRAM, "udp_port")
    say(listening=True)
    connections: Dict[socket.socket, str] = {}
    heard: Set[str] = set()
    gone: Set[str] = set()
    late_s, looked_s = 0.0, time.monotonic()
    spoke_s = looked_s
    with tcp, udp:
        while len(heard & gone) < request["expected"] and looked_s < end_s:
            for ready in select.select([tcp, udp, *connections], [], [], _TICK_S)[0]:
                if ready is tcp:
                    accepted, peer = tcp.accept()
                    connections[accepted] = peer[0]
                    if len(connections) > _MOST_CONNECTIONS:
                        oldest = next(iter(connections))
                        del connections[oldest]
                        oldest.close()
                elif ready is udp:
                    heard.update(_echo(udp, token))
                elif not _answer(ready, token):
                    gone.add(connections.pop(ready))
            now_s = time.monotonic()
            late_s, looked_s = max(late_s, now_s - looked_s - _TICK_S), now_s
            if now_s - spoke_s > _ALIVE_S:
                say(late_s=round(late_s, 1))
                spoke_s = now_s


def _bound(request: Dict[str, Any], kind: int, port: str) -> socket.socket:
    server = socket.socket(family(request["address"]), kind)
    if kind == socket.SOCK_STREAM:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((request["address"], request[port]))
    if kind == socket.SOCK_STREAM:
        server.listen(1024)
    return server


def _echo(udp: socket.socket, token: bytes) -> List[str]:
    """Return the address that was answered."""
    data, sender = udp.recvfrom(256)
    if data != token:
        return []
    with contextlib.suppress(OSError):
        udp.sendto(token, sender)
    return [sender[0]]


def _answer(connection: socket.socket, token: bytes) -> bool:
    """Give the token back; False once the other side has hung up."""
    try:
        data = connection.recv(256)
        if data:
            connection.sendall(token if data == token else b"?")
            return True
    except OSError:
        pass
    connection.close()
    return False


def connect(request: Dict[str, Any]) -> Dict[str, str]:
    """Ask by TCP and UDP from this node's own address; per protocol an empty text, or why there was no answer."""
    end = time.monotonic() + request["seconds"]
    # UDP first: hanging up the TCP connection tells the other side that this node is done
    udp = _attempts(request, socket.SOCK_DGRAM, "udp_port", end)
    return {"udp": udp, "tcp": _attempts(request, socket.SOCK_STREAM, "tcp_port", max(end, time.monotonic() + 2))}


def _attempts(request: Dict[str, Any], kind: int, port: str, end: float) -> str:
    half_s = (end - time.monotonic()) / 2 if kind == socket.SOCK_DGRAM else end - time.monotonic()
    end = time.monotonic() + half_s
    error, attempts = "no answer", 0
    while time.monotonic() < end or attempts < _LEAST_ATTEMPTS:
        attempts += 1
        try:
            wait_s = 0.5 if kind == socket.SOCK_DGRAM else max(0.5, end - time.monotonic())
            _ask(request, kind, (request["address"], request[port]), wait_s)
            return ""
        except socket.timeout:
            error = "no answer"
        except OSError as problem:
            error = problem.strerror or str(problem)
            time.sleep(min(_RETRY_S, _FIRST_RETRY_S * attempts))
    return error


def _ask(request: Dict[str, Any], kind: int, server: Tuple[str, int], wait_s: float) -> None:
    token = request["token"].encode()
    with socket.socket(family(server[0]), kind) as client:
        client.settimeout(wait_s)
        client.bind((request["source"], 0))
        client.connect(server)
        client.sendall(token)
        if client.recv(256) != token:
            raise OSError("another program answers there")
