"""What of this machine a session uses, written down before it is made, and undone from that after any crash."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LEAVES_S = 15.0


class Journal:
    """One line of JSON for each process, mount, namespace, interface and control group."""

    def __init__(self, home: Path) -> None:
        """`home` is the session's folder; it goes last."""
        self.home = home
        self._path = home / "journal.jsonl"

    def note(self, kind: str, subject: str, born: int = 0) -> None:
        """Before it is made; a process right after, with the time it was born, so that its number is never mistaken."""
        with self._path.open("a") as stream:
            stream.write(json.dumps([kind, subject, born]) + "\n")

    def note_process(self, pid: int) -> None:
        """A process that this session started."""
        self.note("process", str(pid), birth(pid))

    def undo(self) -> None:
        """Last things first; each may be gone already, or never have been."""
        steps: dict[str, Callable[[str, int], None]] = {
            "process": end_process,
            "mount": _unmount,
            "namespace": lambda name, _: _ip("netns", "del", name),
            "link": lambda name, _: _ip("link", "del", name),
            "cgroup": _remove_group,
        }
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        entries = [json.loads(line) for line in dict.fromkeys(lines) if line.endswith("]")]
        for kind in steps:  # processes before what they hold
            for found, subject, born in reversed(entries):
                if found == kind:
                    steps[kind](subject, born)
        shutil.rmtree(self.home, ignore_errors=True)


def birth(pid: int) -> int:
    """When the process began, in the kernel's ticks; 0 where there is none."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def end_process(pid: str, born: int) -> None:
    """Kill it if it still is the one that was noted, and wait until it has gone."""
    number, deadline = int(pid), time.monotonic() + _LEAVES_S
    while born and birth(number) == born:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not end after SIGKILL in {_LEAVES_S:g} s")
        time.sleep(0.02)


def _unmount(path: str, _: int) -> None:
    while os.path.ismount(path):
        subprocess.run(["umount", "--lazy", path], check=True, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=False, capture_output=True)


def _remove_group(path: str, _: int) -> None:
    """The group and those that a systemd made below it; whatever still runs there is killed."""
    root, deadline = Path(path), time.monotonic() + _LEAVES_S
    while root.is_dir():
        for folder in sorted([root, *root.rglob("*/")], key=lambda found: len(found.parts), reverse=True):
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise TimeoutError(f"control group {path} is still in use after {_LEAVES_S:g} s")
        time.sleep(0.02)
