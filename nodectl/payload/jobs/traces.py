"""The traces that a job's ranks left on this host: what is in them, and their files for who gathers them.

As a program it sends one file: `jobs.traces JOB NAME`, in frames of `data` (base64), then one of `end` (its size).
"""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import os
import re
import stat
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, List, Optional

from ..common.frames import exit_status, send
from . import nsys
from .chrome_trace import TraceError, read_events
from .folder import JobFolder, JobFolderError, write_atomic
from .trace_summary import summarize

_NOTE = re.compile(r"(\d{1,7})\.note\.json")
_FILE = re.compile(r"\d{1,7}\.(json\.gz|nsys-rep)")
_NOTE_BYTES = 64 << 10
_SUMMARY_BYTES = 4 << 20
_CHUNK_BYTES = 512 << 10
_MOST_AT_ONCE = 8
_ENDINGS = {"torch": "json.gz", "nsys": "nsys-rep"}


def main(argv: List[str]) -> int:
    """Send a trace's file; 1 with the reason where it is none."""
    return exit_status(lambda: _send(JobFolder(argv[0]), argv[1]), JobFolderError)


def _send(job: JobFolder, name: str) -> None:
    if not _FILE.fullmatch(name):
        raise JobFolderError(f"{name!r} is no trace")
    handle = os.open(job.at("traces", name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise JobFolderError(f"{name} is no file")
        sent = 0
        while True:
            data = file.read(_CHUNK_BYTES)
            if not data:
                break
            send({"data": base64.b64encode(data).decode()})
            sent += len(data)
    send({"end": sent})


def look(job: JobFolder) -> List[Dict[str, Any]]:
    """Of each rank that was to be traced here: its note, `file` and `size_bytes`, `summary` or the `problem`."""
    folder = job.at("traces")
    try:
        names = sorted(name for name in os.listdir(folder) if _NOTE.fullmatch(name))
    except FileNotFoundError:
        return []
    places = [os.path.join(folder, name) for name in names]
    workers = min(_MOST_AT_ONCE, len(places), os.cpu_count() or 1)
    if workers > 1:
        # other ways to start cannot import this package by its name; without semaphores it goes one after the other
        fork = multiprocessing.get_context("fork")
        with contextlib.suppress(OSError, ImportError), ProcessPoolExecutor(workers, fork) as pool:
            return list(pool.map(_row, places))
    return [_row(place) for place in places]


def _row(place: str) -> Dict[str, Any]:
    note = _read(place, _NOTE_BYTES)
    rank = os.path.basename(place).split(".")[0]
    row: Dict[str, Any] = {
        "rank": int(rank),
        "attempt": _number(note.get("attempt")),
        "optimizer_steps": _number(note.get("optimizer_steps")),
        "tool": str(note.get("tool", ""))[:20],
        "problem": str(note.get("problem", "its note cannot be read"))[:500],
        "file": "",
        "size_bytes": 0,
        "summary": None,
    }
    if row["problem"]:
        return row
    path = os.path.join(os.path.dirname(place), f"{rank}.{_ENDINGS.get(row['tool'], 'json.gz')}")
    with contextlib.suppress(OSError):
        row["size_bytes"] = os.path.getsize(path)
        row["file"] = os.path.basename(path)
    try:
        row["summary"] = _summary(path)
    except (TraceError, OSError, ValueError) as error:
        row["problem"] = f"{os.path.basename(path)}: {error}"[:500]
    return row


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else 0


def _summary(path: str) -> Dict[str, Any]:
    """Read once: it is kept beside the trace."""
    kept = f"{path}.summary"
    with contextlib.suppress(OSError):
        if os.path.getmtime(kept) >= os.path.getmtime(path) and (summary := _read(kept, _SUMMARY_BYTES)):
            return summary
    read = nsys.read_events if path.endswith(".nsys-rep") else read_events
    summary = summarize(read(path))
    with contextlib.suppress(OSError):
        write_atomic(kept, json.dumps(summary).encode())
    return summary


def _read(path: str, most_bytes: int) -> Dict[str, Any]:
    """The document; empty where there is none, or a damaged one."""
    document: Optional[Any] = None
    with contextlib.suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
        data = file.read(most_bytes + 1)
        document = json.loads(data) if len(data) <= most_bytes else None
    return document if isinstance(document, dict) else {}
