"""Collects a host's commands in one round trip, and knows the frames in which their outputs come back."""

import re
import shlex
import time
from collections.abc import Sequence

from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Entry, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.resources import payload_dir
from nodectl.transport.base import Transport

_START = re.compile(rb"^nodectl-collect/1 (\S+)\n", re.MULTILINE)
_FRAME = re.compile(rb"(out|err) (\S+) (\S+) (\d+)\n")
_END = b"end\n"
_SLACK_S = 15.0


def script(commands: Sequence[Command]) -> bytes:
    """The collector for these commands, as text for a POSIX shell."""
    takes = [f"take {shlex.quote(each.key)} {each.deadline_s} {shlex.join(each.argv)}" for each in commands]
    body = (payload_dir() / "collect.sh").read_text(encoding="utf-8")
    return "\n".join([body, *takes, "echo end", ""]).encode()


def collect(transport: Transport, host: Host, commands: Sequence[Command]) -> Recording | CommandResult:
    """Run `commands` on `host` in one round trip; the failed result where it could not be asked."""
    received = bytearray()
    arrivals: list[float] = []

    def keep(stream: str, data: bytes) -> None:
        if stream == "stdout":
            received.extend(data)
            if not arrivals and _START.search(received):
                arrivals.append(time.time())

    asked = time.time()
    timeout_s = sum(each.deadline_s for each in commands) + _SLACK_S
    done = transport.run(host, ["sh", "-s"], timeout_s=timeout_s, stdin=script(commands), on_output=keep)
    if done.outcome is not Outcome.RAN:
        return done
    try:
        return read_frames(host.name, bytes(received), commands, asked=asked, heard=arrivals[0] if arrivals else asked)
    except ParseError as error:
        reason = f"{error.message} (exit status {done.exit_status}) {done.error}".rstrip()
        return CommandResult(host.name, done.argv, Outcome.UNREACHABLE, None, "", "", done.duration_s, reason)


def read_frames(host: str, data: bytes, commands: Sequence[Command], *, asked: float, heard: float) -> Recording:
    """What the collector printed as a recording; `asked` and `heard` are our clock around its first line.

    ParseError where it did not start, or ended before its last frame.
    """
    start = _START.search(data)
    if start is None:
        raise ParseError("the collector did not start: is the login shell's output clean, and sh there?")
    argv = {each.key: each.argv for each in commands}
    outputs: dict[str, tuple[bytes, bytes]] = {}
    entries: dict[str, Entry] = {}
    position = start.end()
    while not data.startswith(_END, position):
        frame = _FRAME.match(data, position)
        size = int(frame[4]) if frame else 0
        if frame is None or len(data) < frame.end() + size + 1:
            raise ParseError(f"the collector's output breaks off after {len(entries)} of {len(commands)} commands")
        body, position = data[frame.end() : frame.end() + size], frame.end() + size + 1
        key = frame[2].decode()
        if frame[1] == b"out":
            outputs[key] = (frame[3], body)
        elif key in outputs:
            entries[key] = _entry(key, argv.get(key, ()), *outputs[key], body, int(frame[3]) / 100)
    offset_s = _offset_s(start[1], heard)
    return Recording(host, entries, offset_s, None if offset_s is None else heard - asked)


def _entry(key: str, argv: tuple[str, ...], status: bytes, out: bytes, err: bytes, duration_s: float) -> Entry:
    cut = not status.isdigit()
    stdout, stderr = out.decode(errors="replace"), err.decode(errors="replace")
    return Entry(key, argv, None if cut else int(status), stdout, stderr, duration_s, cut)


def _offset_s(stamp: bytes, heard: float) -> float | None:
    try:
        return float(stamp) - heard
    except ValueError:  # a date without %N
        return None
