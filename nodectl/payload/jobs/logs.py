"""The job's output as frames, so that a follower can tell silence from a dead connection."""

from __future__ import annotations

import contextlib
import heapq
import io
import itertools
import json
import os
import re
import resource
import time
from bisect import bisect_left
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

from ..common.frames import exit_status, send
from . import outputs
from .folder import JobFolder, JobFolderError
from .process import is_alive, read_stat

_POLL_S = 0.2
_ALIVE_S = 2.0
_UNFINISHED_S = 1.0
_FROZEN_S = 30.0  # a guard ends a job whose supervisor is frozen long before
_CHUNK_BYTES = 1 << 20  # a longer line is cut
_HEAD_BYTES = 32
# how torchrun marks the lines of a rank
_MARK = re.compile(rb"\[default(\d+)\]:")

Wanted = Callable[[bytes], bool]


def main(argv: List[str]) -> int:
    """Send the requested output; return 1 with the reason on stderr if that fails."""
    with contextlib.suppress(OSError, ValueError):  # many attempts have many files
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return exit_status(lambda: stream(*argv), JobFolderError)


def stream(job_id: str, mode: str, request: str) -> None:
    """Send the frames for `jobs.logs ID MODE REQUEST`.

    Frames `{"file", "rank", "offset", "text"}` of lines of one file; `{"dropped"}` where so many bytes of a file are no
    longer there; then `{"end"}`. Before them `{"offsets"}`, where those are not the files' beginnings.

    `mode` is `follow` (until the supervisor has left; `{"alive"}` every 2 s, but of one that is frozen) or `once`.
    `request` is JSON: `offsets` in bytes by file, or `tail` in lines, or `since_s` seconds ago; `local_rank` for the
    lines of one. `rank` is of the file, null where lines say it themselves.
    """
    job = JobFolder(job_id)
    if not job.exists:
        raise JobFolderError(f"no job {job_id} on this host")
    asked: Dict[str, Any] = json.loads(request)
    reader = _Reader(job, asked.get("local_rank"))
    if "offsets" in asked:
        reader.seek(asked["offsets"])
    elif "tail" in asked:
        reader.begin_at(tail_offsets(job, asked["tail"], asked.get("local_rank")))
    elif "since_s" in asked:
        reader.begin_at(_since(job, float(asked["since_s"]), asked.get("local_rank")))
    reader.run(follow=mode == "follow")


def wanted(name: str, rank: Optional[int]) -> Wanted:
    """Return a test of a line's first bytes for that rank: only lines of the common output are marked with one."""

    def is_wanted(head: bytes) -> bool:
        mark = _MARK.match(head)
        return mark is not None and int(mark[1]) == rank

    return is_wanted if rank is not None and name == outputs.COMMON else lambda _head: True


def _since(job: JobFolder, seconds: float, rank: Optional[int]) -> Dict[str, int]:
    sizes: Dict[str, int] = {}
    for row in itertools.takewhile(lambda row: row.time <= time.time() - seconds, outputs.rows(job)):
        sizes.update(row.sizes)
    begins = {}
    for name in outputs.shown_files(job, rank):
        with _opened(job, name) as file:
            begins[name] = _line_after(file, sizes.get(name, 0))
    return begins


def _line_after(file: BinaryIO, offset: int) -> int:
    """Return the first beginning of a line from `offset` on; the file's end if there is none."""
    if offset == 0:
        return 0
    at = file.seek(offset - 1)
    while True:
        data = file.read(_CHUNK_BYTES)
        newline = data.find(b"\n")
        if newline >= 0 or not data:
            return at + newline + 1 if data else at
        at += len(data)


def tail_offsets(job: JobFolder, lines: int, rank: Optional[int]) -> Dict[str, int]:
    """Return, by file, where the last `lines` lines of all files begin, ordered by the known times of writing."""
    names = outputs.shown_files(job, rank)
    marks: Dict[str, Tuple[List[int], List[int]]] = {name: ([], []) for name in names}
    for look, row in enumerate(outputs.rows(job, recent=True)):
        for name in marks.keys() & row.sizes.keys():
            marks[name][0].append(row.sizes[name])
            marks[name][1].append(look)
    files = {name: _opened(job, name) for name in names}
    begins = {name: file.seek(0, os.SEEK_END) for name, file in files.items()}

    def last_lines(name: str) -> Iterator[Tuple[float, int, str, int]]:
        sizes, looks = marks[name]
        starts = line_starts(files[name], wanted(name, rank), kept_from(files[name], 0))
        # within one row of the index, lines are taken in turn from the files' ends
        for number, offset in enumerate(starts):
            place = bisect_left(sizes, offset + 1)
            yield -(looks[place] if place < len(looks) else float("inf")), number, name, offset

    newest_first = heapq.merge(*map(last_lines, names))
    for _, _, name, offset in itertools.islice(newest_first, lines):
        begins[name] = offset
    for file in files.values():
        file.close()
    return begins


def line_starts(file: BinaryIO, wanted: Wanted, begin: int = 0) -> Iterator[int]:
    """Yield where the lines begin that are wanted, the last first; the file is read from its end, a block at a time."""
    at = file.seek(0, os.SEEK_END)
    if at > begin and _read(file, at - 1, at) == b"\n":
        at -= 1
    elif at == begin:
        return
    following = b""
    while at > begin:
        start = max(begin, at - _CHUNK_BYTES)
        block = _read(file, start, at)
        newline = block.rfind(b"\n")
        while newline >= 0:
            if wanted((block[newline + 1 : newline + 1 + _HEAD_BYTES] + following)[:_HEAD_BYTES]):
                yield start + newline + 1
            newline = block.rfind(b"\n", 0, newline)
        following = (block[:_HEAD_BYTES] + following)[:_HEAD_BYTES]
        at = start
    if begin == 0 and wanted(following):
        yield 0


def _read(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


def _opened(job: JobFolder, name: str) -> BinaryIO:
    return open(job.at(name), "ab+" if name == outputs.COMMON else "rb", buffering=0)


def kept_from(file: BinaryIO, start: int) -> int:
    """Return where what is left of a file begins, from `start` on: before that its output was deleted."""
    at = file.tell()
    try:
        return os.lseek(file.fileno(), start, os.SEEK_DATA)
    except OSError:  # nothing comes behind it, or the file has no number
        return start
    finally:
        file.seek(at)


class _Reader:
    def __init__(self, job: JobFolder, rank: Optional[int]) -> None:
        self._job, self._rank = job, rank
        self._streams: Dict[str, Stream] = {}
        self._supervisor = _Supervisor(job)
        self._find()

    def _find(self) -> None:
        for name in outputs.shown_files(self._job, self._rank):
            if name not in self._streams:
                file = _opened(self._job, name)
                file.seek(0)
                frame = {"file": name, "rank": outputs.local_rank(name)}
                self._streams[name] = Stream(frame, file, wanted(name, self._rank))

    def begin_at(self, offsets: Dict[str, int]) -> None:
        """Begin at these offsets, and send them to the reader, who needs them if the connection breaks."""
        send({"offsets": offsets})
        self.seek(offsets)

    def seek(self, offsets: Dict[str, int]) -> None:
        """Continue where a former reader stopped."""
        for name, offset in offsets.items():
            if name in self._streams:
                self._streams[name].seek(offset)

    def run(self, *, follow: bool) -> None:
        """Read until the files' ends, or until the supervisor has left."""
        for row in outputs.rows(self._job):  # what was written before, in its order
            for name, size in row.sizes.items():
                while name in self._streams and self._streams[name].pass_on(size):
                    pass
        spoke_s = time.monotonic()
        while True:
            running = follow and self._supervisor.is_there()  # asked before reading: what it wrote last is then read
            self._find()
            sent = [stream.pass_on(ended=not running) for stream in self._streams.values()]
            if any(sent):
                spoke_s = time.monotonic()
                continue
            if not running:
                send({"end": True})
                return
            if time.monotonic() - spoke_s > _ALIVE_S and self._supervisor.moves():
                send({"alive": True})
                spoke_s = time.monotonic()
            time.sleep(_POLL_S)


class _Supervisor:
    """The job's supervisor here; the state with its pid is read only while none is known, since rebuilding is slow."""

    def __init__(self, job: JobFolder) -> None:
        self._job = job
        self._pid = self._start_ticks = 0
        self._moved_s = time.monotonic()

    def is_there(self) -> bool:
        """Tell whether the supervisor exists, running or frozen."""
        if not is_alive(self._pid, self._start_ticks):
            state = self._job.state()
            self._pid, self._start_ticks = int(state.get("pid", 0)), int(state.get("start_ticks", 0))
        return is_alive(self._pid, self._start_ticks)

    def moves(self) -> bool:
        """Tell whether the supervisor was not stopped throughout the last seconds."""
        stat = read_stat(self._pid)
        if stat is None or stat.state not in "tT":
            self._moved_s = time.monotonic()
        return time.monotonic() - self._moved_s < _FROZEN_S


class Stream:
    """Sends a file's new lines; one that is not finished within a second, or too long, is cut."""

    def __init__(self, frame: Dict[str, Any], file: BinaryIO, wanted: Wanted) -> None:
        """`frame` is what each frame says beside its text."""
        self._frame, self._file, self._wanted = frame, file, wanted
        self._unfinished_s: Optional[float] = None

    def seek(self, offset: int) -> None:
        """Begin there."""
        self._file.seek(offset)

    def pass_on(self, limit: Optional[int] = None, *, ended: bool = False) -> bool:
        """Send the output before `limit`; return False for nothing."""
        start = self._file.tell()
        data = self._file.read(_CHUNK_BYTES if limit is None else max(0, min(_CHUNK_BYTES, limit - start)))
        begin = kept_from(self._file, start) if data else start
        if begin > start:  # looked at after reading: what is deleted is known then
            begin = _line_after(self._file, begin)
            self._file.seek(begin)
            send({**self._frame, "offset": begin, "dropped": begin - start})
            return True
        end = data.rfind(b"\n") + 1
        if end or not data:
            self._unfinished_s = None
        elif ended or len(data) == _CHUNK_BYTES or self._is_late():
            end = len(data)
        self._file.seek(start + end)
        kept = b"".join(line for line in io.BytesIO(data[:end]) if self._wanted(line[:_HEAD_BYTES]))
        if kept:
            send({**self._frame, "offset": start + end, "text": kept.decode(errors="replace")})
        return end > 0

    def _is_late(self) -> bool:
        self._unfinished_s = self._unfinished_s or time.monotonic()
        return time.monotonic() - self._unfinished_s > _UNFINISHED_S
