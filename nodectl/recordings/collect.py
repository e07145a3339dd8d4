"""Collects a host's commands in one round trip."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Sequence
from functools import cache

from nodectl.common.resources import payload_dir
from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.recordings.frames import TOTAL_BYTES, has_started, read_frames
from nodectl.transport.base import Transport

# for all commands of a host together; what has no time left is a deadline overrun
BUDGET_S = 120
_SLACK_S = 30.0


def script(commands: Sequence[Command], nonce: str, *, budget_s: int = BUDGET_S, pack: bool = True) -> bytes:
    """The collector for these commands, as text for a POSIX shell."""
    settings = f"nonce={nonce} budget={budget_s} pack={int(pack)}"
    # what is answered at once comes before what may hang; what may hang takes no answer of another with it
    alone = [command for command in commands if not command.is_quick]
    groups = [
        [command for command in commands if command.is_quick and not command.waits],
        [command for command in commands if command.is_quick and command.waits],
    ]
    alone += [command for group in groups if len(group) == 1 for command in group]
    groups = [group for group in groups if len(group) > 1]
    functions = "".join(_function(f"take_{number}", group) for number, group in enumerate(groups))
    functions += _function("take_alone", sorted(alone, key=lambda command: command.deadline_s))
    names = " ".join(f"take_{number}" for number in range(len(groups)))
    return f"{settings} groups='{names}'\n{_body()}\n{functions}main\n".encode()


def _function(name: str, commands: Sequence[Command]) -> str:
    return "\n".join([f"{name}() {{", "    :", *(f"    {_take(command)}" for command in commands), "}", ""])


@cache
def _body() -> str:
    return (payload_dir() / "recordings" / "collect.sh").read_text(encoding="utf-8")


def _take(command: Command) -> str:
    login = "root" if command.root else "login"
    return f"take {shlex.quote(command.key)} {command.deadline_s} {login} {shlex.join(command.argv)}"


def new_nonce() -> str:
    """What no output of a host can hold by chance or on purpose."""
    return secrets.token_hex(16)


def collect(transport: Transport, host: Host, commands: Sequence[Command]) -> Recording | CommandResult:
    """Run `commands` on `host` in one round trip; the failed result where it could not be asked."""
    received = bytearray()
    arrivals: list[float] = []

    def keep(stream: str, data: bytes) -> None:
        if stream == "stdout" and len(received) < TOTAL_BYTES:
            received.extend(data)
            if not arrivals and has_started(received):
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
        reason = f"{error.message} (exit status {done.exit_status}) {done.error}".rstrip()
        return CommandResult(host.name, done.argv, Outcome.UNREACHABLE, None, "", "", done.duration_s, reason)
