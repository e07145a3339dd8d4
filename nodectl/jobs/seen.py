"""The ids of jobs that were listed here, and of those that were started here, by fleet: no host is asked for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir

_MOST = 50


def note_jobs(fleet: str, ids: Iterable[str], *, started: bool = False) -> None:
    """Keep them, the newest first; if that cannot be, nothing is kept."""
    for place in (_place(fleet), *([_place(fleet, "started")] if started else [])):
        seen_ids = _read(place)
        kept = sorted({*seen_ids, *ids}, reverse=True)[:_MOST]
        if kept != seen_ids:
            with suppress(OSError):
                place.parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(place, json.dumps(kept))


def started_jobs(fleet: str) -> list[str]:
    """Return the ids of jobs that `launch` started from here, the newest first."""
    return _read(_place(fleet, "started"))


def _read(place: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return [str(name) for name in json.loads(place.read_bytes())]
    return []


def _place(fleet: str, kind: str = "seen") -> Path:
    return cache_dir() / f"jobs-{kind}" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:32]}.json"
