"""The job's output as frames, so that a follower can tell silence from a dead connection."""

from __future__ import annotations

import codecs
import json
import os
import re
import time
from typing import Any, BinaryIO, Callable, Dict, Optional

from ..common.frames import send
from .folder import JobFolder, JobFolderError

_POLL_S = 0.2
_ALIVE_S = 2.0
_UNFINISHED_S = 1.0
_CHUNK_BYTES = 256 * 1024
_HEAD_BYTES = 32
# how torchrun marks the lines of a rank
_MARK = re.compile(rb"\[default(\d+)\]:")

Wanted = Callable[[bytes], bool]


def stream(job_id: str, mode: str, request: str) -> None:
    """Frames `{"offset", "text", "goes_on"}` of whole lines, or of a part of one that goes on; then `{"end"}`.

    `mode` is `follow` (until the supervisor has left; `{"alive"}` every 2 s) or `once`. `request` is JSON: `offset` in
    bytes, with `inside` where that is within a line, or `tail` in lines; `local_rank` for the lines of one.
    """
    job = JobFolder(job_id)
    if not job.exists:
        raise JobFolderError(f"no job {job_id} on this host")
    asked: Dict[str, Any] = json.loads(request)
    wanted = _wanted(asked.get("local_rank"))
    with open(job.at("output.log"), "ab+") as file:
        if "tail" in asked:
            file.seek(tail_offset(file, asked["tail"], wanted))
        else:
            file.seek(asked["offset"])
        _Stream(file, wanted, inside=bool(asked.get("inside"))).run(job, follow=mode == "follow")


def _wanted(local_rank: Optional[int]) -> Wanted:
    """Whether a line that begins with these bytes is of that rank."""

    def is_of_rank(head: bytes) -> bool:
        mark = _MARK.match(head)
        return mark is not None and int(mark[1]) == local_rank

    return is_of_rank if local_rank is not None else lambda _: True


def tail_offset(file: BinaryIO, lines: int, wanted: Wanted) -> int:
    """Where the last `lines` lines begin that are wanted; the file is read from its end, a block at a time."""
    at = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return at
    if at and _read(file, at - 1, at) == b"\n":
        at -= 1
    following = b""
    while at > 0:
        begin = max(0, at - _CHUNK_BYTES)
        block = _read(file, begin, at)
        newline = block.rfind(b"\n")
        while newline >= 0:
            if wanted((block[newline + 1 : newline + 1 + _HEAD_BYTES] + following)[:_HEAD_BYTES]):
                lines -= 1
                if lines == 0:
                    return begin + newline + 1
            newline = block.rfind(b"\n", 0, newline)
        following = (block[:_HEAD_BYTES] + following)[:_HEAD_BYTES]
        at = begin
    return 0


def _read(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


class _Stream:
    """Sends what is written to a file: lines, and long ones in parts; never more of it in memory than a chunk."""

    def __init__(self, file: BinaryIO, wanted: Wanted, *, inside: bool) -> None:
        self._file, self._wanted = file, wanted
        self._inside: Optional[bool] = True if inside else None  # of a line: whether it is wanted
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def run(self, job: JobFolder, *, follow: bool) -> None:
        """Until the file's end, or until the supervisor has left."""
        spoke_s = time.monotonic()
        while True:
            running = follow and job.supervisor_alive()  # asked before reading: what it wrote last is then read
            if self._pass_on(partial=not running):
                spoke_s = time.monotonic()
                continue
            if not running:
                self._break_off()
                send({"end": True})
                return
            if self._inside is not None and time.monotonic() - spoke_s > _UNFINISHED_S:
                self._break_off()  # others wait for the end of this line
            if time.monotonic() - spoke_s > _ALIVE_S:
                send({"alive": True})
                spoke_s = time.monotonic()
            time.sleep(_POLL_S)

    def _pass_on(self, *, partial: bool) -> bool:
        """Send what is there, an unfinished last line with `partial` only; False where there is nothing."""
        start = self._file.tell()
        data = self._file.read(_CHUNK_BYTES)
        if self._inside is not None:
            end = data.find(b"\n") + 1
            self._send_part(start, data[: end or len(data)], wanted=self._inside, goes_on=not end)
            self._file.seek(start + (end or len(data)))
            return bool(data)
        end = data.rfind(b"\n") + 1
        if not end and data and (partial or len(data) == _CHUNK_BYTES):
            self._send_part(start, data, wanted=self._wanted(data[:_HEAD_BYTES]), goes_on=True)
            return True
        self._file.seek(start + end)
        self._send_lines(start + end, data[:end])
        return end > 0

    def _send_lines(self, offset: int, data: bytes) -> None:
        kept = b"".join(line + b"\n" for line in data.split(b"\n")[:-1] if self._wanted(line[:_HEAD_BYTES]))
        if kept:
            send({"offset": offset, "text": kept.decode(errors="replace"), "goes_on": False})

    def _send_part(self, start: int, data: bytes, *, wanted: bool, goes_on: bool) -> None:
        self._inside = wanted if goes_on else None
        if wanted and data:
            text = self._decoder.decode(data, final=not goes_on)
            held = len(self._decoder.getstate()[0])  # the beginning of a character
            send({"offset": start + len(data) - held, "text": text, "goes_on": goes_on})

    def _break_off(self) -> None:
        """End the line that did not go on."""
        if self._inside:
            text = self._decoder.decode(b"", final=True)
            send({"offset": self._file.tell(), "text": f"{text}\n", "goes_on": False})
        self._inside = None
