"""The job's output as frames, so that a follower can tell silence from a dead connection."""

from __future__ import annotations

import os
import time
from typing import BinaryIO

from ..common.frames import send
from .folder import JobFolder, JobFolderError

_POLL_S = 0.2
_ALIVE_S = 2.0
_CHUNK_BYTES = 256 * 1024


def stream(job_id: str, mode: str, offset: str) -> None:
    """Frames `{"offset", "text"}` of whole lines from byte `offset` (negative: from the end) on, then `{"end"}`.

    `mode` is `follow` (until the supervisor has left; `{"alive"}` every 2 s) or `once`.
    """
    job = JobFolder(job_id)
    if not job.exists:
        raise JobFolderError(f"no job {job_id} on this host")
    with open(job.at("output.log"), "ab+") as file:
        start = int(offset)
        size = os.fstat(file.fileno()).st_size
        file.seek(start if start >= 0 else max(0, size + start))
        _stream(job, file, follow=mode == "follow")


def _stream(job: JobFolder, file: BinaryIO, *, follow: bool) -> None:
    spoke_s = time.monotonic()
    while True:
        running = follow and job.supervisor_alive()  # asked before reading: what it wrote last is then read
        if _send_lines(file, partial=not running):
            spoke_s = time.monotonic()
            continue
        if not running:
            send({"end": True})
            return
        if time.monotonic() - spoke_s > _ALIVE_S:
            send({"alive": True})
            spoke_s = time.monotonic()
        time.sleep(_POLL_S)


def _send_lines(file: BinaryIO, *, partial: bool) -> bool:
    """Send the whole lines that are there (also an unfinished last one, with `partial`); False where there are none."""
    start = file.tell()
    data = file.read(_CHUNK_BYTES)
    end = data.rfind(b"\n") + 1
    if not end and (partial or len(data) == _CHUNK_BYTES):
        end = len(data)
    file.seek(start + end)
    if end:
        send({"offset": start + end, "text": data[:end].decode(errors="replace")})
    return end > 0
