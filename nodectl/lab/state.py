"""A lab's folder: the journal of what was made for it, written before it is made, so that `down` can always find it."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from nodectl.common.documents import values_of
from nodectl.common.files import replace_file
from nodectl.common.paths import state_dir
from nodectl.common.spelling import meant
from nodectl.errors import LabError, UsageError
from nodectl.lab.spec import LabSpec

LinkKind = Literal["veth", "netem", "wire"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be confused with a later one of the same number; `started` is in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Return the process that has `pid` now; ProcessLookupError if none has."""
        return cls(pid, _start_time(pid))

    @property
    def alive(self) -> bool:
        """It still runs (a zombie does not)."""
        try:
            return _start_time(self.pid) == self.started
        except ProcessLookupError:
            return False


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One host; `process` is its PID 1 as the machine sees it."""

    name: str
    address: str
    mac: str
    process: Process | None = None

    @property
    def up(self) -> bool:
        """The process that is the host's PID 1 still runs."""
        return self.process is not None and self.process.alive


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A fault that was asked for; `undo` is what heal needs to know."""

    kind: str
    host: str
    undo: str = ""


@dataclass(frozen=True, slots=True)
class LabState:
    """The journal's content; `complete` is false until every host has answered; `former_loops` are not its own."""

    spec: LabSpec
    subnet: str
    link: LinkKind
    hosts: tuple[HostRecord, ...] = ()
    wire: Process | None = None
    faults: tuple[FaultRecord, ...] = ()
    former_loops: tuple[int, ...] = ()
    complete: bool = False

    def host(self, name: str) -> HostRecord:
        """Return the host of that name; an error that lists them if there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        names = f"{self.hosts[0].name} to {self.hosts[-1].name}" if self.hosts else "none"
        hint = meant(name, [host.name for host in self.hosts])
        raise UsageError(f"the lab has no host '{name}'", f"{hint}its hosts are {names}")


class LabFolder:
    """The folder of one lab, and the names that follow from it."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        # eight hex digits that tell this lab from those in other folders
        lab_id = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
        # the one interface that the lab has in the machine's own network, and its control group
        self.uplink, self.cgroup = f"nl-{lab_id}", f"nodectl-lab-{lab_id}"
        self.journal = path / "lab.json"
        self.switch = path / "switch.net"  # the network namespace that holds the bridge
        self.base = path / "base"  # the read-only layer that all hosts share (a small tmpfs)
        self.store = path / "hosts"  # one folder a host with what it has written
        self.shared = path / "shared"  # every host can write it, as storage on the network
        self.inventory = path / "inventory.yml"
        self.known_hosts, self.ssh_config = path / "known_hosts", path / "ssh_config"
        self.client_key = path / "id_ed25519"  # the operator's private key for the hosts

    @classmethod
    def named(cls, name: str) -> "LabFolder":
        """Return the folder of the lab `name` of this operator (not made yet)."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
            raise UsageError(f"'{name}' is no name for a lab", "use lower-case letters, digits and dashes")
        return cls((state_dir() / "lab" / name).resolve())

    def read(self) -> LabState | None:
        """Return the journal, or None if there is no lab; LabError if it cannot be read."""
        try:
            (state,) = values_of(LabState, [json.loads(self.journal.read_text(encoding="utf-8"))])
            return state
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LabError(f"{self.journal} is damaged: {error}", "`nodectl lab down` cleans up without it") from error

    def write(self, state: LabState) -> LabState:
        """Keep `state`, all or nothing; returned for chaining."""
        replace_file(self.journal, json.dumps(asdict(state), indent=1), mode=0o644)
        return state

    def running(self) -> LabState:
        """Return the journal of a lab that is up; an error if none is."""
        state = self.read()
        if state is None or not state.complete:
            others = sorted(path.parent.name for path in self.path.parent.glob("*/lab.json") if path != self.journal)
            there = f", or name one that is there: --name {' or '.join(others)}" if others else ""
            raise LabError(f"the lab '{self.name}' is not up", f"run `nodectl lab up --name {self.name}`{there}")
        return state


@contextmanager
def locked(folder: Path | None = None) -> Iterator[None]:
    """Keep others who lock this folder waiting, by default this operator's `lab` commands; the lock leaves no file."""
    descriptor = os.open(folder or state_dir(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # processes that were forked meanwhile hold the same lock
        os.close(descriptor)


def with_fault(state: LabState, fault: FaultRecord) -> LabState:
    """`state` with `fault` in the place of an earlier one of that kind on that host."""
    others = tuple(f for f in state.faults if (f.kind, f.host) != (fault.kind, fault.host))
    return replace(state, faults=(*others, fault))


def _start_time(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(pid) from error
    state, *rest = text.rpartition(")")[2].split()  # a name may hold spaces and brackets
    if state in "ZX":
        raise ProcessLookupError(pid)
    return int(rest[18])
