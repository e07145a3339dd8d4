"""Files that are replaced as a whole."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from nodectl.common.files import replace_file


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_content_and_the_mode_are_as_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    previous = os.umask(0o077)
    try:
        replace_file(path, "after \udcff", mode=mode, sync=True)
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"after \xff"
    assert path.stat().st_mode & 0o777 == mode


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"after", sync=True)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"


def test_a_pipe_or_device_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe, 0o666)
    link.symlink_to(pipe)
    mode = pipe.stat().st_mode
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, link):
            replace_file(path, b"text")
            assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.stat().st_mode == mode
    assert link.is_symlink()


def test_a_pipe_that_nobody_reads_is_an_error_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="nobody reads this pipe"):
        replace_file(pipe, b"text")


def test_a_pipe_that_somebody_reads_gets_more_than_it_holds(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = tmp_path / "read"
    with read.open("wb") as to, subprocess.Popen(["cat", str(pipe)], stdout=to) as reader:
        text = b"x" * 1_000_000
        until = time.monotonic() + 20
        while True:
            try:
                replace_file(pipe, text)
                break
            except OSError:  # the reader has not opened it yet
                assert time.monotonic() < until
        assert (reader.wait(20), read.read_bytes()) == (0, text)
    assert pipe.is_fifo()
