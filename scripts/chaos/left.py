"""What is on a host, so that what a job leaves there can be told: processes, ports, shared memory, groups, files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodectl.lab.cgroups import cgroup2_root
from scripts.chaos.hosts import ASKED, STATE, Lab, LabHost

_LISTENS = "0A"
_LOOKED_AT = ("root", "tmp", "var/tmp", "run", "home", "opt", "srv", "etc", "var/log")
# thousands of files of the lab's and the trials' own
_NOT_LOOKED_AT = frozenset(("opt/nodectl-chaos", "srv/nodectl", ASKED))
# docs/jobs.md, 'What lies on a node'
_OF_A_JOB = (
    r"plan\.json|rank|secret|code(/.*)?|output\.(log|index)|ranks(/.*)?|notes(/.*)?|black_box(/.*)?|state\.json"
    r"|supervisor\.log|stopped_by"
)
_NAMED = re.compile(rf"{STATE}(/jobs(/[^./][^/]*(/({_OF_A_JOB}))?|/\.[^/]+\.undone)?|/payload(/[^/]+(/.*)?)?)?")
_KEPT_BY_CLEAN = re.compile(rf"{STATE}(/jobs(/\.[^/]+\.undone)?|/payload(/.*)?)?")
# of the lab, of these trials, and of the torch that they train with
_OWN = re.compile(
    r"root/\.(local(/(state|share))?|cache)|run/sshd.*|etc/ld\.so\.preload|var/log/sshd\.log"
    r"|tmp/torchinductor_[^/]+(/.*)?"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A host's state; processes by their number here, with their words."""

    processes: dict[int, str]
    ports: frozenset[str]
    shared_memory: frozenset[str]
    groups: frozenset[str]
    files: frozenset[str]


def look(lab: Lab, host: LabHost) -> Snapshot:
    """Return what is there now."""
    processes = {seen.pid: " ".join(seen.argv)[:200] for seen in host.processes()}
    shm = frozenset(path.name for path in (host.root / "dev/shm").iterdir())
    return Snapshot(processes, frozenset(_ports(host)), shm, frozenset(_groups(lab, host)), frozenset(_files(host)))


def living(before: Snapshot, after: Snapshot) -> list[str]:
    """Return what runs or is held that was not before."""
    found = [f"process: {words}" for pid, words in after.processes.items() if pid not in before.processes]
    found += [f"port: {port}" for port in sorted(after.ports - before.ports)]
    found += [f"shared memory: {name}" for name in sorted(after.shared_memory - before.shared_memory)]
    return found + [f"control group: {name}" for name in sorted(after.groups - before.groups)]


def unnamed(before: Snapshot, after: Snapshot) -> list[str]:
    """Files that docs/jobs.md does not name."""
    return [f"file: {name}" for name in sorted(after.files - before.files) if not _NAMED.fullmatch(name)]


def uncleaned(before: Snapshot, after: Snapshot) -> list[str]:
    """Files that `jobs clean` should have removed."""
    return [f"file: {name}" for name in sorted(after.files - before.files) if not _KEPT_BY_CLEAN.fullmatch(name)]


def of_lab(lab: Lab) -> list[str]:
    """Return what this machine holds of the lab."""
    root = cgroup2_root()
    places = [lab.folder.path, Path("/sys/class/net", lab.folder.uplink)]
    places += [root / lab.folder.cgroup] if root else []
    return [str(place) for place in places if place.exists()]


def _ports(host: LabHost) -> Iterator[str]:
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        path = Path(f"/proc/{host.pid}/net/{kind}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if kind.startswith("udp") or fields[3] == _LISTENS:
                yield f"{kind} {int(fields[1].rpartition(':')[2], 16)}"


def _groups(lab: Lab, host: LabHost) -> Iterator[str]:
    root = cgroup2_root()
    top = root / lab.folder.cgroup / host.name if root else None
    if top is not None and top.is_dir():
        yield from (str(path.relative_to(top)) for path in top.rglob("*") if path.is_dir())


def _files(host: LabHost) -> Iterator[str]:
    for place in _LOOKED_AT:
        for folder, folders, names in os.walk(host.root / place):
            here = os.path.relpath(folder, host.root)
            folders[:] = [name for name in folders if f"{here}/{name}" not in _NOT_LOOKED_AT]
            yield from (path for path in (f"{here}/{name}" for name in (*folders, *names)) if not _OWN.fullmatch(path))
