"""What /proc tells of a process that waits: its call, with the file or the process, and its children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodectl.payload.jobs import waiting

_CHILD = "import os, subprocess, time\ndef load():\n    {}\nload()\n"


@contextmanager
def running(folder: Path, load: str) -> Iterator[int]:
    """The pid of a Python that stands in `load`, at line 3."""
    script = folder / "train.py"
    script.write_text(_CHILD.format(load))
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def until(told: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not told():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def can_read_calls() -> bool:
    try:
        return bool(waiting._names()) and bool(Path("/proc/self/syscall").read_text())
    except OSError:
        return False


@pytest.mark.parametrize(
    ("load", "call"),
    [
        ("os.read(0, 1)", "read() of pipe:["),
        ("open('{0}/fifo')", "openat() of {0}/fifo"),
        ("time.sleep(100)", "clock_nanosleep()"),
        ("subprocess.run(['sleep', '100'])", "(sleep 100)"),
    ],
)
def test_the_call_and_what_it_is_of(tmp_path: Path, load: str, call: str) -> None:
    if not can_read_calls():
        pytest.skip("this kernel tells no calls, or nodectl has no names for this machine's")
    os.mkfifo(tmp_path / "fifo")
    with running(tmp_path, load.format(tmp_path)) as pid:
        until(lambda: call.format(tmp_path) in waiting.call(pid))
        if "sleep 100" in call:
            assert [(row["command"], row["state"]) for row in waiting.helpers(pid)] == [("sleep 100", "S")]
