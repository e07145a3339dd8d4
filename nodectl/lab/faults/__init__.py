"""Faults on demand: what a kind is, all kinds, and how one is made to happen and is undone.

A fault really happens in a host's own namespaces. The FAULTS of each module of this folder are found by being there.
The journal is written before a fault, and after it is undone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.common.declarations import modules_below
from nodectl.common.spelling import meant
from nodectl.errors import LabError, UsageError
from nodectl.lab.base import PATH
from nodectl.lab.state import FaultRecord, HostRecord, LabFolder, LabState, with_fault

_ACT_S = 30.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The place of a fault; `state` is how the lab is to be afterwards, with the faults that then stand."""

    folder: LabFolder
    state: LabState
    host: HostRecord

    @property
    def pid(self) -> int:
        """Return the host's PID 1, as the machine sees it; LabError if the host is not up."""
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
    needs a lab that is dressed in a recording; `simulated`: in GPUs of the catalogue, with the simulated NVML.
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
    simulated: bool = False

    @property
    def way(self) -> str:
        """Return how it comes about, and when it shows: `real`, `recorded`, `simulated`, `real, load`."""
        way = "simulated" if self.simulated else "recorded" if self.dressed else "real"
        return f"{way}{', load' if self.load else ''}"


def kinds_table() -> str:
    """Return the kinds for people: a line each, with the way in which it comes about."""
    width = max(map(len, FAULTS))
    return "\n".join(f"{name:<{width}}  {fault.way:<10}  {fault.about}" for name, fault in FAULTS.items())


def kinds_document() -> dict[str, object]:
    """Return the kinds for JSON; `found_by`: one of these checks has to see it."""
    kinds = [
        {
            "kind": name,
            "about": fault.about,
            "recorded": fault.dressed,
            "load": fault.load,
            "found_by": list(fault.checks),
        }
        for name, fault in FAULTS.items()
    ]
    return {"kinds": kinds}


def break_host(folder: LabFolder, kind: str, name: str) -> None:
    """Let `kind` happen to the host, after the journal has it; UsageError where either is unknown."""
    fault = _fault(kind)
    before = folder.running()
    host = before.host(name)
    if any((record.kind, record.host) == (kind, name) for record in before.faults):
        return
    scene = Scene(folder, before, host)
    scene.pid  # noqa: B018 - a dead host cannot be broken
    undo = fault.remember(scene)
    after = folder.write(with_fault(before, FaultRecord(kind, name, undo)))
    try:
        fault.happens(Scene(folder, after, host), undo)
    except BaseException:
        fault.heal(scene, undo)
        folder.write(before)
        raise


def heal_hosts(folder: LabFolder, name: str | None, kind: str | None = None) -> list[FaultRecord]:
    """Undo the faults of one host or of all, of one kind or of all, the last one first; return those undone."""
    state = folder.running()
    if name is not None:
        state.host(name)
    if kind is not None:
        _fault(kind)
    healed = [row for row in reversed(state.faults) if name in (None, row.host) and kind in (None, row.kind)]
    for record in healed:
        after = replace(state, faults=tuple(fault for fault in state.faults if fault != record))
        scene = Scene(folder, after, state.host(record.host))
        if scene.host.up:
            FAULTS[record.kind].heal(scene, record.undo)
        state = folder.write(after)
    return healed


def _fault(kind: str) -> Fault:
    if kind not in FAULTS:
        raise UsageError(
            f"there is no fault '{kind}'", f"{meant(kind, FAULTS)}`nodectl lab fault --list` shows the kinds"
        )
    return FAULTS[kind]


# last: the modules import the declaration above
FAULTS: dict[str, Fault] = {
    fault.name: fault for module in modules_below(__name__, "FAULTS") for fault in module.FAULTS
}
