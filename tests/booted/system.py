"""A booted system as tests see it: commands over SSH as one of its logins, its console, and its reboots."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LAST_LINES = 15
_SSH_S = 60.0


class BootError(Exception):
    """A system did not come up, or went away; says what its console showed last."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a command on a system ended."""

    status: int
    out: str
    err: str


class System:
    """What containers and machines have in common."""

    def __init__(self, name: str, address: str, home: Path, ssh_config: Path) -> None:
        """`home` is the system's own folder on this machine."""
        self.name = name
        self.address = address
        self.home = home
        self.console = home / "console.log"
        self._ssh_config = ssh_config

    def alive(self) -> bool:
        """The process that carries it runs."""
        raise NotImplementedError

    def run(
        self, command: str, *, login: str = "root", check: bool = True, timeout_s: float = _SSH_S, stdin: str = ""
    ) -> Said:
        """A shell command in a session of its own, as sshd and PAM make it; with `check`, a failure fails the test."""
        argv = ["ssh", "-F", str(self._ssh_config), "-l", login, self.name, command]
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            what = f"{self.name}: no end of {command!r} in {timeout_s:g} s"
            raise AssertionError(f"{what}\n{self.last_lines()}") from None
        said = Said(done.returncode, done.stdout.strip(), done.stderr.strip())
        if check and said.status != 0:
            raise AssertionError(f"{self.name}: {command!r} ended with {said.status}: {said.out}\n{said.err}")
        return said

    def out(self, command: str, *, login: str = "root", timeout_s: float = _SSH_S) -> str:
        """What a command printed."""
        return self.run(command, login=login, timeout_s=timeout_s).out

    def last_lines(self) -> str:
        """The end of its console."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return "\n".join([f"--- console of {self.name}", *text.splitlines()[-_LAST_LINES:]])

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Until it holds; a dead system and a passed deadline are errors with the console's end."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if not self.alive():
                raise BootError(f"{self.name} ended while waiting for {what}\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise BootError(f"{self.name}: not {what} in {timeout_s:g} s\n{self.last_lines()}")
            time.sleep(0.1)

    def wait_up(self, timeout_s: float) -> None:
        """Until root can log in, and the boot has ended: tests look at units."""
        self.wait_for(self._greets, "an SSH banner", timeout_s)
        self.wait_for(lambda: self.run("true", check=False).status == 0, "a login over SSH", timeout_s)
        done = "systemctl is-system-running --wait"
        self.run(done, check=False, timeout_s=timeout_s)

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=2) as connection:
                connection.settimeout(5)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def boot_id(self) -> str:
        """Differs after each boot."""
        return self.out("cat /proc/sys/kernel/random/boot_id")

    def reboot(self, timeout_s: float = 120) -> None:
        """As an operator does it, and until it is up again."""
        before = self.boot_id()
        self.run("systemctl reboot", check=False)

        def again() -> bool:
            said = self.run("cat /proc/sys/kernel/random/boot_id", check=False) if self._greets() else Said(1, "", "")
            return said.status == 0 and said.out != before

        self.wait_for(again, "back after a reboot", timeout_s)
        self.wait_up(timeout_s)
