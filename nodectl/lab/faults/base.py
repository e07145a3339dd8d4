"""What a fault is: one kind, where it happens, how it is undone, and which checks have to see it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.errors import DeclarationError, LabError
from nodectl.lab.base import PATH
from nodectl.lab.state import HostRecord, LabFolder, LabState

_ACT_S = 30.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The place of a fault; `state` is how the lab is to be afterwards, with the faults that then stand."""

    folder: LabFolder
    state: LabState
    host: HostRecord

    @property
    def pid(self) -> int:
        """Return the host's PID 1, as the machine sees it; LabError where the host is not up."""
        if self.host.process is None or not self.host.up:
            raise LabError(f"{self.host.name} is not up", "run `nodectl lab down`, then `nodectl lab up`")
        return self.host.process.pid

    @property
    def root(self) -> Path:
        """Return the host's file system, reached through its PID 1."""
        return Path(f"/proc/{self.pid}/root")

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the faults that stand on this host, in the order in which they came."""
        return tuple(fault.kind for fault in self.state.faults if fault.host == self.host.name)

    def run(self, argv: Sequence[str]) -> str:
        """Return what a command prints that runs as the host's root, in all its namespaces."""
        ways = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        command = ["nsenter", f"--target={self.pid}", *ways, "--", *argv]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ACT_S, env={"PATH": PATH, "LC_ALL": "C"}, check=False
        )
        if done.returncode != 0:
            raise LabError(f"{self.host.name}: {argv[0]}: {done.stderr.strip()[:300]}", "run `nodectl lab heal`")
        return done.stdout


# what is done on a host; the text is the one that `remember` returned
Act = Callable[[Scene, str], object]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind: it `happens`; `remember` returns, before that, the text from which `heal` undoes it.

    `heal` does no harm where the fault never happened. `checks` are ids of which at least one has to find it; `load`:
    it shows only under load, to a probe; `takes_two`: the other host that has the same is named, too; `dressed`: it
    needs a lab that is dressed in a recording.
    """

    name: str
    about: str
    checks: tuple[str, ...]
    happens: Act = lambda scene, undo: None
    heal: Act = lambda scene, undo: None
    remember: Callable[[Scene], str] = lambda scene: ""
    load: bool = False
    takes_two: bool = False
    dressed: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9-]*", self.name):
            raise DeclarationError(f"fault {self.name!r}: a name has a-z, 0-9 and - only")
        if not isinstance(self.checks, tuple) or not all(isinstance(check, str) for check in self.checks):
            raise DeclarationError(f"fault {self.name}: checks is no tuple of ids: {self.checks!r}")

    @property
    def way(self) -> str:
        """Return how it comes about, and when it shows: `real`, `recorded`, `real, load`."""
        return f"{'recorded' if self.dressed else 'real'}{', load' if self.load else ''}"
