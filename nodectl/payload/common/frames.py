"""Frames: JSON in a program's standard output, found again among whatever else is printed there.

A login shell's start-up files, a library or a process in the background may print before a frame, between two, and
behind. A frame is `nodectl-frame/VERSION LENGTH JSON`, the length in bytes. Both ends are here: programs on nodes
write, nodectl reads (and a program on a node that has others of ours below it).
"""

import json
import os
import re
import sys
from typing import Any, Callable, List, Tuple, Type, Union

VERSION = 1
MOST_BYTES = 16 << 20
_MARK = b"nodectl-frame/"
_HEAD = re.compile(rb"nodectl-frame/([0-9]{1,4}) ([0-9]{1,9}) ")
_BEGUN_HEAD = re.compile(rb"nodectl-frame/[0-9]{0,4}(?: [0-9]{0,9})?")
# defines the function `frame TEXT` in a POSIX shell; its own program may run without another process
SHELL = 'frame() { LC_ALL=C; printf "nodectl-frame/%d %%s %%s\\n" "${#1}" "$1"; }; ' % VERSION


class FrameError(ValueError):
    """An answer that is cut, or of another version."""


def encode(document: Any) -> bytes:
    """One frame."""
    body = json.dumps(document).encode()
    return _MARK + b"%d %d %s\n" % (VERSION, len(body), body)


def send(document: Any) -> None:
    """Print a frame on standard output: one write where the system takes it so, as several processes share the pipe."""
    left = memoryview(encode(document))
    while left:
        left = left[os.write(1, left) :]


def say(**event: Any) -> None:
    """Print an event as one frame."""
    send(event)


def first_line(error: BaseException) -> str:
    """Return the first line of its text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def exit_status(answer: Callable[[], None], *refusals: Type[Exception]) -> int:
    """Return the exit status of a program that answers in frames: 1, with the reason on stderr, if it fails."""
    errors: Tuple[Type[Exception], ...] = (OSError, *refusals)
    try:
        answer()
    except BrokenPipeError:  # the operator has gone
        os._exit(1)
    except errors as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Reader:
    """Takes a stream as it comes and hands out the texts of its frames; what is none goes to `on_noise`."""

    def __init__(self, on_noise: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_noise = on_noise
        self._rest = bytearray()

    def feed(self, data: bytes) -> List[bytes]:
        """Return the JSON texts of the frames that are complete now; FrameError for a frame of another version."""
        self._rest += data
        complete: List[bytes] = []
        while True:
            start = self._rest.find(_MARK)
            if start < 0:
                self._drop(len(self._rest) - _begun(self._rest))
                return complete
            self._drop(start)
            head = _HEAD.match(self._rest)
            if head is None:
                if _BEGUN_HEAD.fullmatch(self._rest):
                    return complete
                self._drop(len(_MARK))
                continue
            version, size, begin = int(head[1]), int(head[2]), head.end()
            if version != VERSION or size > MOST_BYTES:
                self._rest.clear()
                raise FrameError("a frame of version %d and %d bytes" % (version, size))
            if len(self._rest) < begin + size:
                return complete
            complete.append(bytes(self._rest[begin : begin + size]))
            del self._rest[: begin + size]

    def end(self) -> None:
        """End the stream; FrameError if a frame was begun and its end did not come."""
        if self._rest.startswith(_MARK):
            raise FrameError("it breaks off in the middle, after %d bytes of a frame" % len(self._rest))
        self._drop(len(self._rest))

    def _drop(self, size: int) -> None:
        noise = bytes(self._rest[:size])
        del self._rest[:size]
        if noise.strip():
            self._on_noise(noise)


def _begun(data: Union[bytes, bytearray]) -> int:
    """Return how many of the last bytes may be the beginning of a mark."""
    return next((size for size in range(min(len(_MARK) - 1, len(data)), 0, -1) if data.endswith(_MARK[:size])), 0)


def texts(output: Union[str, bytes]) -> List[bytes]:
    """Return the JSON texts in all that a program printed; FrameError if the last is cut."""
    reader = Reader()
    complete = reader.feed(output.encode() if isinstance(output, str) else output)
    reader.end()
    return complete
