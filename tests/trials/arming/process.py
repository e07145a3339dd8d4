"""A trial in a process of its own, as tests see it: told what to do, heard, and ended with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Trial:
    """A running tests.trials.arming.driver."""

    process: subprocess.Popen[str]
    heard: list[dict[str, Any]] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """One command."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, event: str) -> dict[str, Any]:
        """Its next line of this kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(json.loads(line))
            if self.heard[-1]["event"] == event:
                return self.heard[-1]
        raise AssertionError(f"no {event}: {self.heard}, {self.process.wait(10)}")

    def on(self, setting: str) -> list[dict[str, Any]]:
        """The findings of putting it on."""
        self.tell(f"on {setting}")
        found: list[dict[str, Any]] = self.wait("on")["findings"]
        return found

    def lost(self) -> dict[str, str]:
        """Which hosts it can no longer count on."""
        self.tell("lost")
        found: dict[str, str] = self.wait("lost")["hosts"]
        return found


@contextmanager
def started(inventory: str, lease_s: float, *options: str, env: Mapping[str, str]) -> Iterator[Trial]:
    """A trial over the inventory's hosts; what is left of it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.trials.arming.driver", inventory, str(lease_s), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(env),
        start_new_session=True,
    )
    try:
        yield Trial(process)
    finally:
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)


def descendants(pid: int) -> list[int]:
    """Children, and theirs, in whatever session they are."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found
