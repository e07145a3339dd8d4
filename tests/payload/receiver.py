"""A real receiver of notifications on loopback: it keeps what it accepted, and can be told to misbehave first."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Misdeed = Callable[["Handler"], None]


class Receiver(ThreadingHTTPServer):
    """Accepts with 200; `misdeeds` are done in the place of the first answers, one each."""

    daemon_threads = True

    def __init__(self, port: int = 0, misdeeds: tuple[Misdeed, ...] = ()) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.misdeeds = list(misdeeds)
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []  # all: method, path, headers, body
        self.accepted: list[Any] = []
        self.at: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ids(self) -> list[str]:
        """Those of the JSON form, as accepted."""
        return [body["id"] for body in self.accepted]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        self.server.at.append(time.monotonic())
        if self.server.misdeeds:
            self.server.misdeeds.pop(0)(self)
            return
        self.server.accepted.append(body)
        self.answer(200)

    do_PUT = do_POST  # noqa: N815 - http.server's names

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def answers(status: int, **headers: str) -> Misdeed:
    return lambda handler: handler.answer(status, **headers)


def closes(handler: Handler) -> None:
    """In the middle of the status line."""
    handler.wfile.write(b"HTTP/1.")
    handler.wfile.flush()
    with suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def hangs(seconds: float) -> Misdeed:
    """Sends a byte now and then, and no whole answer."""

    def hang(handler: Handler) -> None:
        with suppress(OSError):
            for byte in b"HTTP/1.1 200 OK of a receiver that never comes to the end of this line"[: int(seconds * 2)]:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(0.5)
            handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    return hang


@contextmanager
def receiver(*misdeeds: Misdeed, port: int = 0) -> Iterator[Receiver]:
    server = Receiver(port, misdeeds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":  # on a host of a lab: PORT FILE, with the accepted bodies as lines of FILE
    with receiver(answers(500), hangs(40), closes, port=int(sys.argv[1])) as alone, Path(sys.argv[2]).open("w") as told:
        while True:
            while alone.accepted:
                told.write(json.dumps(alone.accepted.pop(0)) + "\n")
                told.flush()
            time.sleep(0.1)
