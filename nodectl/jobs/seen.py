"""The ids of jobs that this operator has started or listed, by fleet: to complete them without asking a host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir

_MOST = 50


def note_jobs(fleet: str, ids: Iterable[str]) -> None:
    """Keep them, the newest first; where that cannot be, nothing is kept."""
    known = seen_jobs(fleet)
    kept = sorted({*known, *ids}, reverse=True)[:_MOST]
    if kept != known:
        with suppress(OSError):
            place = _place(fleet)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(place, json.dumps(kept))


def seen_jobs(fleet: str) -> list[str]:
    """The newest first."""
    with suppress(OSError, ValueError):
        return [str(name) for name in json.loads(_place(fleet).read_bytes())]
    return []


def _place(fleet: str) -> Path:
    return cache_dir() / "jobs-seen" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:32]}.json"
