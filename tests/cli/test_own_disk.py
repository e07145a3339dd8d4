"""What is wrong with the operator's own disk is told as that: no traceback, and no bug of ours."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.cli import root

INVENTORY = "all: {hosts: {here: {ansible_connection: local}}}\n"


def nodectl(*args: str, stdout: int, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    argv = [sys.executable, "-m", "nodectl", *args]
    return subprocess.run(argv, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, check=False, timeout=120)


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    place = tmp_path / "file" / "state"
    done = nodectl(
        "-i", str(tmp_path / "hosts.yml"), "history", "list", stdout=subprocess.PIPE, XDG_STATE_HOME=str(place)
    )
    assert done.returncode == 3
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith(f"nodectl: {place}") and "XDG_STATE_HOME" in second
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr


def test_a_full_standard_output() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = nodectl("profile", "list", stdout=full.fileno())
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "nodectl: what nodectl writes: No space left on device"
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("number", "name", "told"),
    [
        (errno.ENOSPC, "/elsewhere/run.json", "/elsewhere/run.json: No space left on device"),
        (errno.EACCES, "/state/health/fleet.json", "/state/health/fleet.json: Permission denied"),
        (errno.ENOENT, "/state/health/fleet.json", ""),
        (errno.ECONNRESET, None, ""),
    ],
)
def test_what_is_of_this_machine(capsys: pytest.CaptureFixture[str], number: int, name: str | None, told: str) -> None:
    assert root.told_of_this_machine(OSError(number, os.strerror(number), name)) is bool(told)
    assert capsys.readouterr().err.startswith(f"nodectl: {told}\n  try: " if told else "")
