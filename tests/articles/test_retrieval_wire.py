"""How front and shards talk: who does not know the token is not answered, and what cannot be is refused."""

import socket
import threading
from pathlib import Path

import pytest

from nodectl.payload.articles.retrieval import wire
from nodectl.payload.common import machine

TOKEN = bytes(range(32))


def test_requests_and_answers_arrive_as_they_were_sent() -> None:
    front, shard = socket.socketpair()
    with front, shard:
        request = wire.Request(2, 3, 10, 7, bytearray(range(24)))
        wire.send_request(front, request)
        assert wire.receive_request(shard) == request
        wire.send_answer(shard, 2, 1, 5000, bytes(24))
        assert wire.receive_answer(front) == wire.Answer(2, 1, 5000, bytearray(24))
        wire.send_end(front)
        assert wire.receive_request(shard) is None


def test_a_front_with_the_token_is_admitted() -> None:
    with wire.listen("127.0.0.1", 0) as server:
        admitted: list[bool] = []

        def accept() -> None:
            sock, _ = server.accept()
            with sock:
                admitted.append(wire.admit(sock, TOKEN))

        waiting = threading.Thread(target=accept)
        waiting.start()
        with wire.connect("127.0.0.1", server.getsockname()[1], "127.0.0.1", TOKEN) as sock:
            assert sock.getsockname()[0] == "127.0.0.1"
        waiting.join()
        assert admitted == [True]


@pytest.mark.parametrize(
    "told", [b"", b"GET / HTTP/1.1\r\n\r\n", wire.GREETING + bytes(32), wire.GREETING + TOKEN[:-1]]
)
def test_who_does_not_know_it_hears_nothing(told: bytes) -> None:
    with wire.listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()) as stranger:
        stranger.sendall(told)
        stranger.shutdown(socket.SHUT_WR)
        shard, _ = server.accept()
        with shard:
            assert wire.admit(shard, TOKEN) is False
        assert stranger.recv(100) == b""


def test_a_length_that_cannot_be_is_refused() -> None:
    front, shard = socket.socketpair()
    with front, shard:
        front.sendall(wire.REQUEST.pack(1 << 20, 1 << 20, 10, 0))
        with pytest.raises(wire.WireError, match="a request of"):
            wire.receive_request(shard)
        shard.sendall(wire.ANSWER.pack(1 << 20, 1 << 20, 0))
        with pytest.raises(wire.WireError, match="an answer of"):
            wire.receive_answer(front)


def test_the_other_ends_end_is_a_lost_connection() -> None:
    front, shard = socket.socketpair()
    front.close()
    with shard, pytest.raises(ConnectionResetError):
        wire.receive_request(shard)


def test_the_tightest_of_the_memory_limits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.available_bytes() is not None
    monkeypatch.setattr(machine, "_meminfo", lambda: 1000)
    monkeypatch.setattr(machine, "_group_left", lambda: 700)
    monkeypatch.setattr(machine, "_limit_left", lambda: None)
    assert machine.available_bytes() == 700


def test_memory_of_a_host_that_tells_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Path, *_: object, **__: object) -> str:
        raise OSError(str(self))

    monkeypatch.setattr(Path, "read_text", nothing)
    assert machine.available_bytes() is None
