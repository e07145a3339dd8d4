"""A checkpoint arrives whole and proven, or not at all."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.payload.jobs import checkpoint_copy
from nodectl.payload.jobs.checkpoint_copy import CopyError, _answer, _put, _SignedStream
from nodectl.payload.jobs.checkpoints import saved

SECRET = b"of this job"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The second host's folder."""
    made = tmp_path / "copies"
    made.mkdir()
    return made


@pytest.fixture
def client(folder: Path) -> Iterator[tuple[socket.socket, _SignedStream]]:
    """The first host's end of a connection that the second host answers."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, theirs.makefile("rwb") as pair:
            try:
                _answer(_SignedStream(pair, SECRET, "nonce"), str(folder))
            except CopyError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    with ours.makefile("rwb") as pair:
        yield ours, _SignedStream(pair, SECRET, "nonce")
        ours.close()
    thread.join()


def header(data: bytes, **changes: object) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    return {"op": "put", "name": "step-1.pt", "size": len(data), "mtime_ns": 5, "sha256": digest, **changes}


def test_a_whole_file_gets_its_name_and_time(
    client: tuple[socket.socket, _SignedStream], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(b"weights")
    client[1].write(header(b"weights"))
    client[1].send_file(str(tmp_path / "source"))
    assert client[1].read() == {"ok": True}
    assert [(item.name, item.size_bytes, item.mtime_ns) for item in saved(str(folder))] == [("step-1.pt", 7, 5)]
    assert (folder / "step-1.pt").read_bytes() == b"weights"


def test_what_is_not_proven_is_not_kept(
    client: tuple[socket.socket, _SignedStream], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(b"weights")
    client[1].write(header(b"weights", sha256="0" * 64))
    client[1].send_file(str(tmp_path / "source"))
    answer = client[1].read()
    assert not answer["ok"] and "differs from the original" in answer["why"]
    assert list(folder.iterdir()) == []


def test_a_name_with_a_way_out_of_the_folder_is_refused_before_any_byte(
    client: tuple[socket.socket, _SignedStream], folder: Path
) -> None:
    client[1].write(header(b"weights", name="../step"))
    answer = client[1].read()
    assert not answer["ok"] and "refused name" in answer["why"]
    assert list(folder.iterdir()) == []


def test_a_connection_that_ends_leaves_nothing(client: tuple[socket.socket, _SignedStream], folder: Path) -> None:
    client[1].write(header(b"weights"))
    client[0].shutdown(socket.SHUT_WR)
    answer = client[1].read()
    assert not answer["ok"] and "ended 7 bytes early" in answer["why"]
    assert list(folder.iterdir()) == []


def test_only_this_jobs_secret_is_heard(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "step-1.pt").write_bytes(b"weights")
    monkeypatch.setattr(checkpoint_copy, "_SILENCE_S", 10.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as pair:
                pair.write(b"nonce\n")
                pair.flush()
                with pytest.raises(CopyError, match="signature"):
                    _answer(_SignedStream(pair, SECRET, "nonce"), str(folder))

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((CopyError, OSError)):
            _put(listener.getsockname()[:2], b"of another job", str(source), saved(str(source))[0])
        thread.join()
    assert list(folder.iterdir()) == []
