"""The supervisor's helper process for checkpoints: who copies to whom, and what it last said."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, Optional

from . import replicate, syscalls
from .checkpoints import resolve
from .folder import JobFolder

_DRAIN_S = 60.0


class Courier:
    """`ready` when the ranks may start, `note` its last word, `problem` why the newest checkpoint is not here."""

    def __init__(self, job: JobFolder, plan: Dict[str, Any]) -> None:
        self.folder: Optional[str] = None
        self.note = ""
        self.problem = ""
        self.ready = True
        self.pid = 0
        self._job, self._plan = job, plan
        self._checkpoint: Optional[Dict[str, Any]] = plan.get("checkpoint")
        self._draining_s: Optional[float] = None
        self._pipe = -1
        self._text = ""
        if self._checkpoint is not None:
            self.folder = resolve(self._checkpoint["dir"])
            os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def start(self) -> None:
        """Fork the process that copies, gives or takes, where this host has a part in it."""
        body = self._body()
        if body is None:
            return
        reader, writer = os.pipe()
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run(body, writer, supervisor)
        os.close(writer)
        os.set_blocking(reader, False)
        self._pipe = reader

    def _body(self) -> Optional[Callable[[Callable[[str], None]], None]]:
        checkpoint, rank, hosts = self._checkpoint, self._plan["rank"], self._plan["hosts"]
        if checkpoint is None or checkpoint["mode"] != "local" or self.folder is None:
            return None
        folder, port, secret = self.folder, int(self._plan["heartbeat_port"]), self._job.secret()
        source = checkpoint.get("restore_from")
        if rank == 0:
            self.ready = source is None
            return lambda say: _master(hosts, port, secret, folder, source, say)
        if rank in (1, source):
            return lambda say: replicate.serve(hosts[rank]["address"], port, secret, folder)
        return None

    def listen(self) -> None:
        """Take in what the process said since."""
        if self._pipe < 0:
            return
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        if not data:
            os.close(self._pipe)
            self._pipe = -1
        *lines, self._text = (self._text + data.decode(errors="replace")).split("\n")
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "problem":
                self.problem = rest
            self.note = rest or self.note

    def reaped(self, pid: int, _status: int) -> None:
        """Take note of its end."""
        if pid == self.pid:
            self.listen()
            self.pid = 0
            if not self.ready and not self.problem:
                self.problem = "the process that fetches the newest checkpoint died"

    def drained(self, now_s: float) -> bool:
        """The last checkpoint is copied, or there was nothing to copy; asks for it with the first call."""
        if self.pid == 0 or self._plan["rank"] != 0:
            return True
        if self._draining_s is None:
            self._draining_s = now_s
            os.kill(self.pid, signal.SIGTERM)
        return now_s - self._draining_s > _DRAIN_S

    def end(self) -> None:
        """End the process."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _run(body: Callable[[Callable[[str], None]], None], writer: int, supervisor: int) -> None:
    """The child: dies with the supervisor, and never returns."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        syscalls.die_with_parent()
        if os.getppid() == supervisor:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            body(lambda line: _say(writer, line))
            status = 0
    except BaseException as error:
        _say(writer, f"problem {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _say(writer: int, line: str) -> None:
    os.write(writer, line.replace("\n", " ").encode()[:1000] + b"\n")


def _master(
    hosts: Any, port: int, secret: bytes, folder: str, source: Optional[int], say: Callable[[str], None]
) -> None:
    """Rank 0: fetch what is newer elsewhere, then copy each new checkpoint to the second host."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    if source is not None:
        name = replicate.fetch((hosts[source]["address"], port), secret, folder)
        say(f"ready fetched {name} from {hosts[source]['name']}")
    second = hosts[1]
    replicate.push_new(
        (second["address"], port),
        secret,
        folder,
        lambda: bool(asked),
        lambda text: say(f"copy {text} ({second['name']})"),
    )
