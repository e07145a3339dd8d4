"""Whether hosts answer: their SSH banners, all waited for in one loop."""

import selectors
import socket
import time
from collections.abc import Sequence

_PORT = 22
_RETRY_S = 0.02


def silent_hosts(addresses: Sequence[str], timeout_s: float) -> list[str]:
    """The addresses that showed no SSH banner within `timeout_s`."""
    waiting = set(addresses)
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        retry = dict.fromkeys(addresses, 0.0)
        while waiting and time.monotonic() < deadline:
            _connect_due(selector, retry)
            for key, _ in selector.select(_RETRY_S if retry else min(1.0, max(0.0, deadline - time.monotonic()))):
                _hear(selector, key, waiting, retry)
        for key in list(selector.get_map().values()):
            _close(selector, key)
    return sorted(waiting)


def _connect_due(selector: selectors.BaseSelector, retry: dict[str, float]) -> None:
    now = time.monotonic()
    for address in [address for address, due in retry.items() if due <= now]:
        del retry[address]
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.connect_ex((address, _PORT))
        selector.register(connection, selectors.EVENT_READ, address)


def _hear(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, waiting: set[str], retry: dict[str, float]
) -> None:
    connection, address = key.fileobj, key.data
    try:
        heard = connection.recv(64) if isinstance(connection, socket.socket) else b""
    except OSError:  # refused: sshd does not listen yet
        heard = b""
    _close(selector, key)
    if heard.startswith(b"SSH-"):
        waiting.discard(address)
    else:
        retry[address] = time.monotonic() + _RETRY_S


def _close(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    selector.unregister(key.fileobj)
    if isinstance(key.fileobj, socket.socket):
        key.fileobj.close()
