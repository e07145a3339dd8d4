"""A checkpoint arrives whole and proven, or not at all."""

import contextlib
import hashlib
import io
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import checkpoint_copy
from nodectl.payload.jobs.checkpoint_copy import (
    CopyError,
    SignedStream,
    _answer,
    _copy_from_first,
    _put,
    _serve,
)
from nodectl.payload.jobs.checkpoints import saved

SECRET = b"of this job"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The second host's folder."""
    made = tmp_path / "copies"
    made.mkdir()
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The first host's folder."""
    made = tmp_path / "first"
    made.mkdir()
    return made


@pytest.fixture
def client(folder: Path) -> Iterator[tuple[socket.socket, SignedStream]]:
    """The first host's end of a connection that the second host answers."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, theirs.makefile("rwb") as pair:
            try:
                stream = SignedStream(pair, SECRET, b"nonces", takes=True)
                _answer(stream, stream.read(), str(folder))
            except CopyError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    with ours.makefile("rwb") as pair:
        yield ours, SignedStream(pair, SECRET, b"nonces", takes=False)
        ours.close()
    thread.join()


@pytest.fixture
def second(folder: Path) -> Iterator[tuple[str, int]]:
    """A second host that serves until the test ends, as a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    pid = os.fork()
    if pid == 0:
        try:
            _serve("127.0.0.1", port, SECRET, str(folder))
        finally:
            os._exit(1)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield "127.0.0.1", port
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def write(path: Path, data: bytes, mtime_s: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (mtime_s, mtime_s))


def put(peer: tuple[str, int], source: Path) -> None:
    for item in saved(str(source)):
        _put(peer, SECRET, str(source), item)


def tree(folder: Path) -> dict[str, bytes]:
    """All visible files below the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".nodectl-copies"
    }


def announce(stream: SignedStream, **changes: object) -> dict[str, Any]:
    stream.write({"op": "put", "name": "step-1.pt", "folder": False, "files": 1, "size": 7, **changes})
    return stream.read()


def test_each_save_is_copied_once_it_has_stopped_changing(
    second: tuple[str, int], source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_copy, "_FOLDER_SETTLES_S", 0.2)
    monkeypatch.setattr(checkpoint_copy, "_SCAN_S", 0.05)
    write(source / "checkpoint-1/model.bin", b"old", 1)
    write(source / "tmp-checkpoint-2/model.bin", b"unfinished", 2)
    ends: list[Callable[..., object]] = []
    monkeypatch.setattr(signal, "signal", lambda _number, handler: ends.append(handler))
    said: list[str] = []
    hosts = [{"name": "node01", "address": "127.0.0.1"}, {"name": "node02", "address": "127.0.0.1"}]
    thread = threading.Thread(
        target=_copy_from_first, args=([hosts[1]], None, second[1], SECRET, str(source), said.append)
    )
    thread.start()
    _await(lambda: len(said) == 1)
    write(source / "checkpoint-2/model.bin", b"new", 2)
    write(source / "checkpoint-2/trainer_state.json", b"{}", 3)
    _await(lambda: len(said) == 2)
    write(source / "checkpoint-3/model.bin", b"last", 4)
    ends[0]()
    thread.join()
    assert [line.partition(" (")[0] for line in said] == [f"copy copied: checkpoint-{step}" for step in (1, 2, 3)]
    assert said[1] == "copy copied: checkpoint-2 (2 files, 0.0 MiB) (node02)"
    assert sorted(tree(folder)) == [
        *("checkpoint-2/model.bin", "checkpoint-2/trainer_state.json", "checkpoint-3/model.bin"),
    ]


def _await(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def test_what_is_not_proven_is_not_kept(client: tuple[socket.socket, SignedStream], folder: Path) -> None:
    assert announce(client[1])["ok"]
    client[1].write({"path": "", "size": 7, "mtime_ns": 5})
    client[1]._pair.write(b"weights")
    # of the bytes alone: they could be another file's
    client[1].write({"sha256": hashlib.sha256(b"weights").hexdigest()})
    answer = client[1].read()
    assert not answer["ok"] and "differs from the original" in answer["why"]
    assert list(folder.iterdir()) == []


def test_a_line_holds_for_its_place_and_its_side_alone() -> None:
    lines = io.BytesIO()
    writer = SignedStream(lines, SECRET, b"n", takes=False)  # type: ignore[arg-type]
    for number in range(2):
        writer.write({"number": number})
    first, second = lines.getvalue().splitlines(keepends=True)
    reader = SignedStream(io.BytesIO(first + second), SECRET, b"n", takes=True)  # type: ignore[arg-type]
    assert [reader.read(), reader.read()] == [{"number": 0}, {"number": 1}]
    for text, nonces, takes in (
        (second, b"n", True),  # the first was left out
        (first, b"n", False),  # turned back to who has sent it
        (first, b"m", True),  # sent again on another connection
    ):
        with pytest.raises(CopyError, match="without this job's signature"):
            SignedStream(io.BytesIO(text), SECRET, nonces, takes=takes).read()  # type: ignore[arg-type]


HOSTILE = [
    "é {}\n".encode(), b"\xff\xfe {}\n", b"\n", b"x" * 200_000, b"0 " + b"[" * 60_000 + b"\n", b"\0" * 40,
]  # fmt: skip


def test_whatever_strangers_send_or_leave_unsent_the_next_copy_arrives(
    second: tuple[str, int], source: Path, folder: Path
) -> None:
    held = [socket.create_connection(second) for _ in range(80)]  # more than are let wait; they trickle
    for place, sock in enumerate(held):
        with contextlib.suppress(OSError):  # the oldest are gone
            sock.sendall(b"n" * (1 + place % 40))
    for line in HOSTILE:
        with contextlib.suppress(OSError), socket.create_connection(second) as sock:
            sock.sendall(b"n" * 32 + line)
    write(source / "step-1.pt", b"weights", 5)
    began_s = time.monotonic()
    put(second, source)
    assert time.monotonic() - began_s < 20
    assert tree(folder) == {"step-1.pt": b"weights"}
    for sock in held:
        sock.close()


@pytest.mark.parametrize("name", ["../step", ".hidden", "a/b", "step.tmp", ""])
def test_a_name_with_a_way_out_of_the_folder_is_refused(
    client: tuple[socket.socket, SignedStream], folder: Path, name: str
) -> None:
    announce(client[1], name=name)
    answer = client[1].read()
    assert not answer["ok"] and "refused name" in answer["why"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", ["../step", "/etc/x", "a/../../b", "a//b", "."])
def test_a_path_with_a_way_out_of_its_folder_is_refused(
    client: tuple[socket.socket, SignedStream], folder: Path, path: str
) -> None:
    assert announce(client[1], folder=True)["ok"]
    client[1].write({"path": path, "size": 0, "mtime_ns": 5})
    answer = client[1].read()
    assert not answer["ok"] and "refused name" in answer["why"]
    assert list(folder.iterdir()) == []
