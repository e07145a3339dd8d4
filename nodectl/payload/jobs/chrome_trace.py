"""Events of a Chrome trace, read as a stream: a file may be huge, cut, or not what its name says."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from typing import IO, Any, Dict, Iterator, NamedTuple

_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 4 << 30
_LONGEST_EVENT = 1 << 20
_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
_OVERLAP = 64
_BLANK = re.compile(r"[\s,]*")
_MOST_US = 1e18
_DECODE = json.JSONDecoder().raw_decode
# as the profiler of torch 1.8 to 1.11 called them
_OLD_KINDS = {"operator": "cpu_op", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "runtime": "cuda_runtime"}


class TraceError(ValueError):
    """Raised for a file that is no trace or exceeds the size limit; the text says which."""


class Event(NamedTuple):
    """Something that took time: its category as torch names it now, name, begin and end in microseconds."""

    kind: str
    name: str
    begin_us: float
    end_us: float


def read_events(path: str, most_bytes: int = _MOST_BYTES) -> Iterator[Event]:
    """Yield the events that have a duration, in the order of a .json or .json.gz file; raise TraceError or OSError."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with open(path, "rb") as file:
        stream: Any = gzip.GzipFile(fileobj=file) if packed else file
        try:
            for document in _documents(stream, most_bytes):
                event = _event(document)
                if event is not None:
                    yield event
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError("the file is cut or damaged: %s" % error) from error


def _event(document: Dict[str, Any]) -> Any:
    """Return the event; None if the document is no event with a duration."""
    begin, duration = document.get("ts"), document.get("dur")
    if document.get("ph") != "X" or not isinstance(begin, (int, float)) or not isinstance(duration, (int, float)):
        return None
    if not (math.isfinite(begin) and math.isfinite(duration) and abs(begin) < _MOST_US and 0 <= duration < _MOST_US):
        raise TraceError("it holds an event with the time %s and the duration %s" % (begin, duration))
    kind = str(document.get("cat", "")).lower()
    return Event(_OLD_KINDS.get(kind, kind), str(document.get("name", "")), float(begin), float(begin + duration))


class _Text:
    """The part of the file that is in memory; `at` is the reading position in it."""

    def __init__(self, stream: IO[bytes], most_bytes: int) -> None:
        import codecs

        self._stream, self._left = stream, most_bytes
        self._most = most_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.text, self.at = "", 0

    def more(self) -> bool:
        """Read another block; False at the end of the file."""
        data = self._stream.read(_CHUNK_BYTES)
        self._left -= len(data)
        if self._left < 0:
            raise TraceError("it has more than %d MiB: profile fewer steps (--trace-steps)" % (self._most >> 20))
        self.text, self.at = self.text[self.at :] + self._decode(data, not data), 0
        return bool(data)


def _documents(stream: IO[bytes], most_bytes: int) -> Iterator[Dict[str, Any]]:
    text = _Text(stream, most_bytes)
    _find_events(text)
    while True:
        text.at = _BLANK.match(text.text, text.at).end()  # type: ignore[union-attr]
        if text.text[text.at : text.at + 1] == "]":
            return
        try:
            document, text.at = _DECODE(text.text, text.at)
        except RecursionError as error:
            raise TraceError("an event is nested too deep") from error
        except ValueError as error:
            if len(text.text) - text.at > _LONGEST_EVENT:
                raise TraceError("an event cannot be read, or has more than %d KiB" % (_LONGEST_EVENT >> 10)) from error
            if not text.more():
                raise TraceError("it breaks off within its events") from error
            continue
        if isinstance(document, dict):
            yield document


def _find_events(text: _Text) -> None:
    """Move the reading position behind the bracket that opens the list of events."""
    is_first = True
    while text.more():
        if is_first and text.text.lstrip()[:1] == "[":
            text.at = text.text.index("[") + 1
            return
        is_first = is_first and not text.text.strip()
        match = _BEGIN.search(text.text)
        if match is not None:
            text.at = match.end()
            return
        text.at = max(0, len(text.text) - _OVERLAP)
    raise TraceError("it is no Chrome trace: it has no traceEvents")
