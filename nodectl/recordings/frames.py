"""The frames in which a collector answers; bounded, whatever a host sends."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.model.recording import Command, Entry, Recording

CAP_BYTES = 16 << 20
# of one host, all commands together; what is beyond is marked cut
TOTAL_BYTES = 32 << 20
_DIGITS = 16
_HEAD = re.compile(rb"nodectl-collect/2 (\S+) (gzip|plain) ([^\n]*)\n")


@dataclass(slots=True)
class _Answer:
    """Hold what came of one command."""

    out: bytes = b""
    err: bytes = b""
    status: int | None = None
    duration_s: float = 0.0
    recorded: bool = False
    loud: str = ""


def has_started(received: bytes | bytearray) -> bool:
    """The collector's first line is there."""
    return _HEAD.search(received) is not None


def read_frames(
    host: str, data: bytes, commands: Mapping[str, Command], nonce: str, *, asked: float, heard: float
) -> Recording:
    """Return what the collector printed as a recording; `asked` and `heard` are our clock around its first line.

    ParseError where it did not start, or ended before its last frame.
    """
    head = _HEAD.search(data)
    if head is None:
        raise ParseError("the collector did not start: is the login shell's output clean, and sh there?")
    text = _unpacked(data[head.end() :], packed=head[2] == b"gzip")
    answers, done = _answers(text, nonce.encode())
    full = len(text) >= TOTAL_BYTES
    if not done and not full:
        raise ParseError(f"the collector's output breaks off after {len(answers)} of {len(commands)} commands")
    kept = {key: answers.get(key, _Answer()) for key in commands if full or key in answers}
    name, offset_s = head[3].decode(errors="replace").strip(), _offset_s(head[1], heard)
    return Recording(
        host=host,
        entries={key: _entry(commands[key], answer) for key, answer in kept.items()},
        clock_offset_s=offset_s,
        clock_error_s=None if offset_s is None else heard - asked,
        recorded=None if name == "-" else name,
        time=asked,
    )


def _unpacked(data: bytes, *, packed: bool) -> bytes:
    if not packed:
        return data[:TOTAL_BYTES]
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, TOTAL_BYTES)
    except zlib.error as error:
        raise ParseError(f"the collector's output is damaged: {error}") from error


def _answers(text: bytes, nonce: bytes) -> tuple[dict[str, _Answer], bool]:
    """Answers by key, and whether the frame after the last one came."""
    answers: dict[str, _Answer] = {}
    done, current = False, _Answer()
    for part in text.split(b"\n" + nonce + b" ")[1:]:
        line, _, body = part.partition(b"\n")
        match line.split():
            case [b"out", key]:
                current = answers[key.decode(errors="replace")] = _Answer(out=body)
            case [b"err", key]:
                answers.setdefault(key.decode(errors="replace"), _Answer()).err = body
            case [b"end", status] if status.isdigit() and len(status) < _DIGITS:
                current.status = int(status)
            case [b"loud", tool]:
                current.loud = f"\nnodectl: cut: {tool.decode(errors='replace')} printed too much\n"
            case [b"took", centiseconds, *marks] if centiseconds.isdigit() and len(centiseconds) < _DIGITS:
                current.duration_s, current.recorded = int(centiseconds) / 100, b"recorded" in marks
            case [b"done"]:
                done = True
    return answers, done


def _entry(command: Command, answer: _Answer) -> Entry:
    return Entry(
        command.key,
        command.argv,
        answer.status,
        as_text(answer.out),
        as_text(answer.err) + answer.loud,
        answer.duration_s,
        cut=answer.status is None or len(answer.out) > CAP_BYTES,
        recorded=answer.recorded,
    )


def as_text(data: bytes) -> str:
    """Return it without NUL; bytes that are no UTF-8 are replaced, and so is what a cut leaves of a character."""
    return data[:CAP_BYTES].replace(b"\0", b"").decode("utf-8", errors="replace")


def _offset_s(stamp: bytes, heard: float) -> float | None:
    try:
        offset_s = float(stamp) - heard
        return offset_s if math.isfinite(offset_s) else None
    except ValueError:  # a date without %N
        return None
