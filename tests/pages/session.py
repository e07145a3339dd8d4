"""One bash for all commands of a page: what a command exports, and where it goes, holds for the next ones."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


class SessionError(Exception):
    """A command that overran its deadline, or ended the shell; the text says which, `output` what it had printed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit status, and what it printed to both streams."""

    status: int
    output: str


class Session:
    """A shell without a terminal, whose commands read /dev/null; on leaving, all of its processes are ended."""

    def __init__(self, folder: Path, env: Mapping[str, str], output: Path) -> None:
        self._output = output
        self._last = 0
        script, self._script = os.pipe()
        self._answers, answers = os.pipe()
        # commands have neither the pipe that bash reads them from nor the one for its answers
        self._redirect = f">{shlex.quote(str(output))} 2>&1 </dev/null {script}<&- {answers}>&-"
        self._answer = f"echo $? >&{answers}"
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", f"/dev/fd/{script}"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            pass_fds=(script, answers),
            start_new_session=True,
        )
        os.close(script)
        os.close(answers)
        self._home = env["HOME"]

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._shell.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._shell.wait(5)
                break
        for descriptor in (self._script, self._answers):
            os.close(descriptor)
        _end_all(self._home)

    def run(self, command: str, timeout_s: float) -> Ended:
        """SessionError where it does not end in time, or ends the shell."""
        lines = f"(exit {self._last})\neval {shlex.quote(command)} {self._redirect}\n{self._answer}\n"
        try:
            os.write(self._script, lines.encode())
        except BrokenPipeError as error:
            raise SessionError("the command before it has ended the shell", "") from error
        answer = self._read(time.monotonic() + timeout_s)
        if answer is None:
            raise SessionError(f"did not end in {timeout_s:.0f} s", self._printed())
        if not answer:
            raise SessionError("has ended the shell", self._printed())
        self._last = int(answer)
        return Ended(self._last, self._printed())

    def _read(self, deadline: float) -> str | None:
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            more = os.read(self._answers, 64)
            if not more:
                break
            text += more
        return text.decode().strip()

    def _printed(self) -> str:
        if not self._output.exists():
            return ""
        return _COLOURS.sub("", self._output.read_text(encoding="utf-8", errors="replace"))


def _end_all(home: str) -> None:
    """SIGKILL for what the page's commands have left in sessions of their own: no other process has its HOME."""
    wanted = b"HOME=" + os.fsencode(home)
    for path in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                os.kill(int(path.name), signal.SIGKILL)
