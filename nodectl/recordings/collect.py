"""Collects a host's commands in one round trip, and reads the frames in which they come."""

from __future__ import annotations

import io
import math
import re
import secrets
import shlex
import tarfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from nodectl.common.resources import payload_dir
from nodectl.errors import ParseError
from nodectl.facts.base import NOT_INSTALLED
from nodectl.facts.look import FOLDER, lacks_program, not_sent, program_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Entry, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import Transport

CAP_BYTES = 16 << 20
# of one host, all commands together; what is beyond is marked cut
TOTAL_BYTES = 32 << 20
_DIGITS = 16
_HEAD = re.compile(rb"nodectl-collect/2 (\S+) (gzip|plain) ([^\n]*)\n")


@dataclass(slots=True)
class _Answer:
    out: bytes = b""
    err: bytes = b""
    status: int | None = None
    duration_s: float = 0.0
    recorded: bool = False
    loud: str = ""


def read_frames(
    host: str, data: bytes, commands: Mapping[str, Command], nonce: str, *, asked: float, heard: float
) -> Recording:
    """Return the collector's output as a recording; ParseError if it did not start, or broke off."""
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
        entries={
            key: Entry(
                commands[key].key,
                commands[key].argv,
                answer.status,
                as_text(answer.out),
                as_text(answer.err) + answer.loud,
                answer.duration_s,
                cut=answer.status is None or len(answer.out) > CAP_BYTES,
                recorded=answer.recorded,
            )
            for key, answer in kept.items()
        },
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


def as_text(data: bytes) -> str:
    """Return it without NUL; bytes that are no UTF-8 are replaced, and so is what a cut leaves of a character."""
    return data[:CAP_BYTES].replace(b"\0", b"").decode("utf-8", errors="replace")


def _offset_s(stamp: bytes, heard: float) -> float | None:
    try:
        offset_s = float(stamp) - heard
        return offset_s if math.isfinite(offset_s) else None
    except ValueError:  # a date without %N
        return None


# Collects a host's commands in one round trip.

_TIMEOUT_S = 120
# Two operators may send at the same time: who is later puts the same bytes there. What nobody has sent for a month is
# of former times, or is sent again.
_KEEP = (
    f'umask 077; d="{FOLDER}"; mkdir -p -- "$d" && chmod 700 "$d" && t=$(mktemp -d "$d.XXXXXX") || exit; '
    'trap \'rm -rf -- "$t"\' EXIT; tar -xmf - -C "$t" && mv -f -- "$t"/* "$d/" || exit; '
    'find "$d" -type f -mtime +30 -exec rm -f {} + || :'
)


def send(transport: Transport, host: Host, commands: Sequence[Command]) -> str:
    """Put the commands' programs where they are looked for; why that was not possible, empty if it was."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, program in {program_of(command): command.program for command in commands}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(program), 0o700, int(time.time())
            archive.addfile(member, io.BytesIO(program))
    done = transport.run(host, ["sh", "-c", _KEEP], timeout_s=_TIMEOUT_S, stdin=packed.getvalue())
    if done.ok:
        return ""
    complaint = (done.stderr.strip().splitlines() or [""])[-1]
    return done.error or complaint or f"exit status {done.exit_status}"


# for all commands of a host together; what has no time left is a deadline overrun
BUDGET_S = 120
_SLACK_S = 30.0
# a group that is late is asked again in so many lanes: a host that is only slow would be slower with all of it at once
_CHAINS = 4
_FIRST_TICK_S = 3
# how a script begins that has nothing to tell without a folder
_GUARD = re.compile(r"\[ -d (/[\w./-]+) \] \|\| exit 3\b|cd (/[\w./-]+) 2>/dev/null \|\| exit 3\b")


def script(commands: Sequence[Command], nonce: str, *, budget_s: int = BUDGET_S) -> bytes:
    """Return the collector for these commands, as text for a POSIX shell."""
    # most hosts are done before the first tick, and each is a process
    first_tick_s = min([_FIRST_TICK_S, budget_s, *(command.deadline_s for command in commands)])
    settings = f"nonce={nonce} budget={budget_s} first_tick={first_tick_s}"
    return f"{settings} {_program(tuple(commands))}".encode()


# equal hosts are asked the same
@lru_cache(maxsize=16)
def _program(commands: tuple[Command, ...]) -> str:
    # what may hang takes no answer of another with it
    quick = [command for command in commands if command.is_quick]
    groups = [[command for command in quick if command.waits is waits] for waits in (False, True)]
    together = [group for group in groups if len(group) > 1]
    placed = {command.key for group in together for command in group}
    left = [command for command in commands if command.key not in placed]
    lanes, functions = [_lanes(group) for group in (*together, left)], ""
    names: list[str] = []
    for number, group in enumerate(lanes):
        parts = [f"lane_{number}_{place}" for place in range(len(group))]
        functions += "".join(map(_function, parts, group))
        names.append(f"group_{number}='{' '.join(parts)}'")
        if number < len(together):
            chains = [parts[first::_CHAINS] for first in range(min(_CHAINS, len(parts)))]
            called = [f"chain_{number}_{place}" for place in range(len(chains))]
            functions += "".join(
                "\n".join([f"{name}() {{", *chain, "}", ""]) for name, chain in zip(called, chains, strict=True)
            )
            names.append(f"group_{number}_apart='{' '.join(called)}'")
    keys = " ".join(f"group_{number}" for number in range(len(together)))
    settings = f"groups='{keys}' {' '.join(names)} alone=$group_{len(together)}"
    # a shell that was started in place of ours has its input open, and would wait for more
    body = (payload_dir() / "recordings" / "collect.sh").read_text(encoding="utf-8")
    return f"{settings}\n{body}\n{functions}main\nexit\n"


def _lanes(commands: Sequence[Command]) -> list[list[Command]]:
    """Return the commands of each tool, which are asked one after the other: what hung once is not asked again."""
    lanes: dict[str, list[Command]] = {}
    for command in commands:
        name = command.argv[0]
        lanes.setdefault(command.key if name in ("sh", "cat") else name, []).append(command)
    return [sorted(lane, key=lambda command: command.deadline_s) for lane in lanes.values()]


def _function(name: str, commands: Sequence[Command]) -> str:
    return "\n".join([f"{name}() {{", *(f"    {_take(command)}" for command in commands), "}", ""])


def _take(command: Command) -> str:
    login = "root" if command.root else "login"
    take = f"{shlex.quote(command.key)} {command.deadline_s} {login} {shlex.join(command.argv)}"
    guard = _GUARD.match(command.argv[2]) if command.argv[:2] == ("sh", "-c") and command.is_quick else None
    if guard:
        return f"ask_in {guard[1] or guard[2]} {take}"
    if command.argv[0] == "cat" and all(path.startswith("/proc/") for path in command.argv[1:]):
        return f"take_file {take}"
    return f"take_newest {take}" if command.newest else f"take {take}"


def new_nonce() -> str:
    """Return what no output of a host can hold by chance or on purpose."""
    return secrets.token_hex(16)


def collect(transport: Transport, host: Host, commands: Sequence[Command]) -> Recording | CommandResult:
    """Run `commands` on `host` in one round trip, three if a program must be sent; the failed result if that fails."""
    answer = _collected(transport, host, commands)
    if not isinstance(answer, Recording):
        return answer
    missing = [command for command in commands if command.program and lacks_program(answer.entries.get(command.key))]
    if not missing:
        return answer
    reason = send(transport, host, missing)
    again = None if reason else _collected(transport, host, missing)
    if isinstance(again, Recording):
        return replace(answer, entries={**answer.entries, **again.entries})
    reason = reason or (again.error if again else "")
    unsent = {command.key: replace(answer.entries[command.key], stderr=not_sent(reason)) for command in missing}
    return replace(answer, entries={**answer.entries, **unsent})


def _collected(transport: Transport, host: Host, commands: Sequence[Command]) -> Recording | CommandResult:
    received = bytearray()
    arrivals: list[float] = []

    def keep(stream: str, data: bytes) -> None:
        if stream == "stdout" and len(received) < TOTAL_BYTES:
            received.extend(data)
            if not arrivals and _HEAD.search(received):
                arrivals.append(time.time())

    nonce, asked = new_nonce(), time.time()
    by_key = {command.key: command for command in commands}
    text = script(tuple(by_key.values()), nonce)
    done = transport.run(host, ["sh", "-s"], timeout_s=BUDGET_S + _SLACK_S, stdin=text, on_output=keep)
    if done.outcome is not Outcome.RAN:
        return done
    try:
        heard = arrivals[0] if arrivals else asked
        return read_frames(host.name, bytes(received), by_key, nonce, asked=asked, heard=heard)
    except ParseError as error:
        reason, remedy = f"{error.message} (exit status {done.exit_status}) {done.error}".rstrip(), ""
        if done.exit_status == NOT_INSTALLED and not received:
            reason, remedy = "sh is not on PATH", "set PATH there, as in PATH=/usr/local/bin:/usr/bin:/bin"
        return CommandResult(host.name, done.argv, Outcome.UNREACHABLE, None, "", "", done.duration_s, reason, remedy)
