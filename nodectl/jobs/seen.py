"""The ids of jobs that were started here, by fleet: no host is asked for them."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir

_MOST = 50


def note_started(fleet: str, job_id: str) -> None:
    """Keep the id, the newest first; if that cannot be, nothing is kept."""
    place = _place(fleet)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(place, json.dumps(sorted({*started_jobs(fleet), job_id}, reverse=True)[:_MOST]))


def started_jobs(fleet: str) -> list[str]:
    """Return the ids of jobs that `launch` started from here, the newest first."""
    with suppress(OSError, ValueError):
        return [str(name) for name in json.loads(_place(fleet).read_bytes())]
    return []


def _place(fleet: str) -> Path:
    return cache_dir() / "jobs-started" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:32]}.json"
