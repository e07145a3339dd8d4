"""What the last looks left: each host's counters and the faults of its boots, one file a fleet in the state folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.checks.counters import Previous
from nodectl.checks.judge import merge_faults
from nodectl.common.files import replace_file

_VERSION = 1


@dataclass(frozen=True, slots=True)
class HostState:
    """One host's last reading, and `faults`: {check|subject: {boot: when it was last seen there}}."""

    reading: Previous
    faults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class StateFile:
    """A fleet's states; reading needs no lock, as a new file takes the old one's place in one step."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.path = folder / f"{hashlib.sha256(fleet.encode()).hexdigest()[:16]}.json"

    def read(self) -> dict[str, HostState]:
        """Host → state; nothing if there was no look yet, or the file cannot be read as one."""
        try:
            return _decode(json.loads(self.path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            return {}

    def write(self, states: Mapping[str, HostState]) -> None:
        """Put these hosts' states beside those of others; of two looks at a host the later one stays."""
        with self._locked():
            merged = self.read()
            for host, state in states.items():
                there = merged.get(host)
                merged[host] = state if there is None else _later(there, state)
            replace_file(self.path, json.dumps(_encode(merged), separators=(",", ":")))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _later(there: HostState, ours: HostState) -> HostState:
    last = ours.reading if ours.reading.time >= there.reading.time else there.reading
    return HostState(last, merge_faults(there.faults, ours.faults, last.time))


def _encode(states: Mapping[str, HostState]) -> dict[str, Any]:
    # hosts of one kind have the same counters, in one order: their names are written once
    name_sets: dict[tuple[str, ...], int] = {}
    hosts = {}
    for host, state in states.items():
        names = tuple(state.reading.counters)
        hosts[host] = {
            "time": round(state.reading.time, 3),
            "boot_id": state.reading.boot_id,
            "names": name_sets.setdefault(names, len(name_sets)),
            "counters": list(state.reading.counters.values()),
            "faults": state.faults,
        }
    return {"version": _VERSION, "names": list(name_sets), "hosts": hosts}


def _decode(document: Any) -> dict[str, HostState]:
    if document["version"] != _VERSION:
        return {}
    tables: Sequence[Sequence[str]] = document["names"]
    return {
        host: HostState(
            Previous(float(row["time"]), row["boot_id"], dict(zip(tables[row["names"]], row["counters"], strict=True))),
            row["faults"],
        )
        for host, row in document["hosts"].items()
    }
