"""Reads, with care, the notes that a rank's Python (in_rank/sitecustomize.py, the user's) left in the job's folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional

from . import outputs, steady
from .folder import is_full

_MOST_BYTES = 8 << 20
_FATAL = "Fatal Python error: "


def hook_folder() -> str:
    """Return the folder of the hook, which is put first on the launcher's PYTHONPATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "in_rank")


def read(path: str) -> Dict[str, Any]:
    """Return the document; {} if there is none, or one that is damaged or too long."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
        document = json.loads(data) if len(data) <= _MOST_BYTES else None
        if isinstance(document, dict):
            return document
    return {}


def place(job: str, rank: int, ending: str) -> str:
    """Return the path of a rank's note."""
    return os.path.join(job, "notes", f"{rank}.{ending}")


def watch_of(job: str, rank: int) -> Dict[str, int]:
    """`signal` that has its stacks written, `handle` of their file; empty without."""
    watch = read(place(job, rank, "json"))
    return watch if all(isinstance(watch.get(name), int) for name in ("signal", "handle")) else {}


def read_error(job: str, rank: int, since_s: float = 0.0) -> Optional[Dict[str, Any]]:
    """Return the uncaught exception of a rank: `chain` of links, `text`, `full`, `monotonic_s`, `flight`; or None.

    One from before `since_s` is another attempt's.
    """
    note = read(place(job, rank, "error.json"))
    if "chain" not in note or note["monotonic_s"] < since_s:
        return None
    flight: Dict[str, Any] = {}
    path = place(job, rank, "flight.json")
    with contextlib.suppress(OSError):
        if os.path.getmtime(path) - time.time() >= since_s - time.monotonic() - 1.0:
            flight = read(path)
    return {**note, "flight": flight}


def raised_at(note: Dict[str, Any]) -> float:
    """Return when the exception was raised, by this host's steady clock."""
    return steady.of_monotonic(float(note["monotonic_s"]))


def full_disks(job: str, *more: str) -> List[str]:
    """Return which of the job's folder, the usual temporary folders and `more` have no free space now."""
    return [where for where in (job, "/dev/shm", "/tmp", "/", *more) if is_full(where)]  # noqa: S108


def crash(job: str, rank: int) -> str:
    """Return faulthandler's text if a crash's signal ended the rank; else ""."""
    _, fatal, text = stacks(job, rank).rpartition(_FATAL)
    return fatal + text.rstrip() if fatal else ""


def stacks(job: str, rank: int) -> str:
    """Return the end of faulthandler's text for a rank, from a crash or a request."""
    return outputs.tail(place(job, rank, "stacks"), 256 * 1024)
