"""What a fault is: one kind, where it happens, how it is undone, and which checks have to see it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.errors import LabError
from nodectl.lab.base import PATH
from nodectl.lab.state import HostRecord, LabFolder, LabState

_ACT_S = 30.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happens; `state` is how the lab is to be afterwards, with the faults that then stand."""

    folder: LabFolder
    state: LabState
    host: HostRecord

    @property
    def pid(self) -> int:
        """The host's PID 1, as the machine sees it."""
        if self.host.process is None or not self.host.up:
            raise LabError(f"{self.host.name} is not up", "run `nodectl lab down`, then `nodectl lab up`")
        return self.host.process.pid

    @property
    def root(self) -> Path:
        """The host's file system, reached through its PID 1."""
        return Path(f"/proc/{self.pid}/root")

    def kinds(self) -> tuple[str, ...]:
        """The kinds of the faults that stand on this host, in the order in which they came."""
        return tuple(fault.kind for fault in self.state.faults if fault.host == self.host.name)

    def run(self, argv: Sequence[str]) -> str:
        """What a command prints that runs as the host's root, in all its namespaces."""
        ways = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        command = ["nsenter", f"--target={self.pid}", *ways, "--", *argv]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ACT_S, env={"PATH": PATH, "LC_ALL": "C"}, check=False
        )
        if done.returncode != 0:
            raise LabError(f"{self.host.name}: {argv[0]}: {done.stderr.strip()[:300]}", "run `nodectl lab heal`")
        return done.stdout


def nothing(scene: Scene) -> str:
    """Heal needs to know nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind. `remember` tells, before it happens, what `heal` needs; heal does no harm where it never happened.

    `checks` are the ids of which one at least has to find it; `load`: it shows only under load, to a probe.
    """

    name: str
    about: str
    checks: tuple[str, ...]
    happens: Callable[[Scene, str], None]
    heal: Callable[[Scene, str], None]
    remember: Callable[[Scene], str] = nothing
    recorded: bool = False
    load: bool = False
