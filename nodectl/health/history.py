"""What the last looks left: each host's counters, one file a fleet in the state folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodectl.checks.counters import Previous
from nodectl.common.files import replace_file

_VERSION = 2


class StateFile:
    """A fleet's readings; reading needs no lock, as a new file takes the old one's place in one step."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.path = folder / f"{hashlib.sha256(fleet.encode()).hexdigest()[:16]}.json"

    def read(self) -> dict[str, Previous]:
        """Host → its last reading; nothing if there was no look yet, or the file cannot be read as one."""
        try:
            return _decode(json.loads(self.path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            return {}

    def write(self, readings: Mapping[str, Previous]) -> None:
        """Put these hosts' readings beside those of others; of two looks at a host the later one stays."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            merged = self.read()
            for host, reading in readings.items():
                merged[host] = max(reading, merged.get(host, reading), key=lambda one: one.time)
            replace_file(self.path, json.dumps(_encode(merged), separators=(",", ":")))


def _encode(readings: Mapping[str, Previous]) -> dict[str, Any]:
    # hosts of one kind have the same counters, in one order: their names are written once
    name_sets: dict[tuple[str, ...], int] = {}
    hosts = {}
    for host, reading in readings.items():
        names = tuple(reading.counters)
        hosts[host] = {
            "time": round(reading.time, 3),
            "boot_id": reading.boot_id,
            "names": name_sets.setdefault(names, len(name_sets)),
            "counters": list(reading.counters.values()),
        }
    return {"version": _VERSION, "names": list(name_sets), "hosts": hosts}


def _decode(document: Any) -> dict[str, Previous]:
    if document["version"] != _VERSION:
        return {}
    tables: Sequence[Sequence[str]] = document["names"]
    return {
        host: Previous(
            float(row["time"]), row["boot_id"], dict(zip(tables[row["names"]], row["counters"], strict=True))
        )
        for host, row in document["hosts"].items()
    }
