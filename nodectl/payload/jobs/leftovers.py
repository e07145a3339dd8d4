"""What a job has left on this node beside its logs: files in its code's folder, and own ones in /dev/shm."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional

from .folder import JobFolder
from .shared_memory import unclaimed

_SHOWN = 5
_MOST = 10_000


def look(job: JobFolder, since_s: float) -> Dict[str, Any]:
    """`outputs`, `shared_memory`: some names of what came since a time of the clock; `more_…`: how many others."""
    outputs = sorted(_written(job.at("code"), since_s))
    memory = sorted(unclaimed(since_s))
    return {**_told("outputs", outputs), **_told("shared_memory", memory)}


def _told(kind: str, names: List[str]) -> Dict[str, Any]:
    shown = names[:_SHOWN]
    return {kind: shown, f"more_{kind}": len(names) - len(shown)} if names else {}


def _written(folder: str, since_s: float) -> Iterator[str]:
    """Places of files in the folder; Python's caches are none. Of very many, those that are met first."""
    seen = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            seen += 1
            if seen > _MOST:
                return
            made_s = _changed_s(os.path.join(path, name))
            if made_s is not None and made_s >= since_s:
                yield os.path.relpath(os.path.join(path, name), folder)


def _changed_s(path: str) -> Optional[float]:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None
