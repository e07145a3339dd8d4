"""How a job's checkpoints reach a second host and come back: a process beside the supervisor, signed TCP.

Nodes hold no SSH keys of each other and the job outlives the operator's connection, so neither can carry the copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import time
from io import BufferedRWPair
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ..common.sockets import family
from . import syscalls
from .checkpoints import Saved, is_name, resolve, saved
from .folder import JobFolder, write_atomic

_DRAIN_S = 60.0
_CHUNK_BYTES = 1 << 20
_SILENCE_S = 30.0
_KEPT = 2
_SCAN_S = 0.5
_MANIFEST = ".nodectl-copies"
_RETRIES = 5

Say = Callable[[str], None]


class CopyError(Exception):
    """A copy could not be made; the text says why."""


class Courier:
    """The process that copies, as its supervisor sees it.

    `ready`: the ranks may start; `note`: its last message; `problem`: why the newest checkpoint is not here.
    """

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

    def _body(self) -> Optional[Callable[[Say], None]]:
        checkpoint, rank, hosts = self._checkpoint, self._plan["rank"], self._plan["hosts"]
        if checkpoint is None or checkpoint["mode"] != "local" or self.folder is None:
            return None
        folder, port, secret = self.folder, int(self._plan["heartbeat_port"]), self._job.secret()
        source = checkpoint.get("restore_from")
        if rank == 0:
            self.ready = source is None
            return lambda say: _copy_from_first(hosts, port, secret, folder, source, say)
        if rank in (1, source):
            return lambda say: _serve(hosts[rank]["address"], port, secret, folder)
        return None

    def listen(self) -> None:
        """Take in what the process wrote since."""
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
        """Kill the process, whatever it is doing; half a copy has no checkpoint's name."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _run(body: Callable[[Say], None], writer: int, supervisor: int) -> None:
    """The child: dies with the supervisor, and never returns."""

    def say(line: str) -> None:
        os.write(writer, line.replace("\n", " ").encode()[:1000] + b"\n")

    status = 1
    try:
        signal.set_wakeup_fd(-1)
        syscalls.die_with_parent()
        if os.getppid() == supervisor:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            body(say)
            status = 0
    except BaseException as error:
        say(f"problem {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _copy_from_first(
    hosts: List[Dict[str, str]], port: int, secret: bytes, folder: str, source: Optional[int], say: Say
) -> None:
    """On the first host: fetch what is newer on `source`, then copy each new checkpoint to the second host.

    After SIGTERM it ends with one more round.
    """
    ending: List[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    if source is not None:
        name = _fetch((hosts[source]["address"], port), secret, folder)
        say(f"ready fetched {name} from {hosts[source]['name']}")
    second = (hosts[1]["address"], port)
    copied: Set[Saved] = set(saved(folder)[:-1])  # of those that are there already, only the newest is copied
    before: List[Saved] = []
    while True:
        last_round = bool(ending)
        now = saved(folder)
        for item in now:
            # written in place, a file is complete when it has stopped changing
            if item not in copied and (item in before or last_round):
                outcome = _try_put(second, secret, folder, item)
                if not outcome.startswith("not copied"):
                    copied.add(item)
                if outcome:
                    say(f"copy {outcome} ({hosts[1]['name']})")
        if last_round:
            return
        before = now
        time.sleep(_SCAN_S)


def _try_put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved) -> str:
    """`copied: NAME`, `not copied: NAME: REASON`, or nothing where the program has removed the file meanwhile."""
    try:
        _put(peer, secret, folder, item)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, CopyError) as error:
        return f"not copied: {item.name}: {error}"
    return f"copied: {item.name}"


def _put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved) -> None:
    """Copy one checkpoint to the peer; CopyError or OSError where that fails."""
    with _connected(peer, secret) as stream:
        stream.write({**_header(folder, item), "op": "put"})
        stream.send_file(os.path.join(folder, item.name))
        answer = stream.read()
    if not answer["ok"]:
        raise CopyError(str(answer["why"]))


def _fetch(peer: Tuple[str, int], secret: bytes, folder: str) -> str:
    """Get the peer's newest checkpoint; its name."""
    for attempt in range(_RETRIES):
        try:
            with _connected(peer, secret) as stream:
                stream.write({"op": "get"})
                header = stream.read()
                stream.receive_file(header, folder)
                return str(header["name"])
        except ConnectionRefusedError:  # the peer's supervisor is still starting
            if attempt + 1 == _RETRIES:
                raise
            time.sleep(1)
    raise CopyError("no answer")


def _serve(address: str, port: int, secret: bytes, folder: str) -> None:
    """On the second host, or the one with the newest checkpoint: take and give until this process is ended."""
    listener = socket.create_server((address, port), family=family(address))
    while True:
        connection, _ = listener.accept()
        connection.settimeout(_SILENCE_S)
        with connection, connection.makefile("rwb") as pair:
            nonce = secrets.token_hex(16)
            try:
                pair.write(nonce.encode() + b"\n")
                pair.flush()
                _answer(_SignedStream(pair, secret, nonce), folder)
            except (OSError, ValueError, KeyError, CopyError) as error:
                print(f"checkpoint copy: {error}", flush=True)


def _answer(stream: _SignedStream, folder: str) -> None:
    request = stream.read()
    if request["op"] == "get":
        newest = saved(folder)[-1]
        stream.write(_header(folder, newest))
        stream.send_file(os.path.join(folder, newest.name))
        return
    try:
        stream.receive_file(request, folder)
        _keep_newest(folder, request["name"])
        stream.write({"ok": True})
    except (OSError, CopyError) as error:
        stream.write({"ok": False, "why": str(error)})


@contextlib.contextmanager
def _connected(peer: Tuple[str, int], secret: bytes) -> Iterator[_SignedStream]:
    with socket.create_connection(peer, timeout=_SILENCE_S) as connection, connection.makefile("rwb") as pair:
        yield _SignedStream(pair, secret, pair.readline(100).decode().strip())


class _SignedStream:
    """JSON lines signed with the job's secret and the connection's nonce; files, proven by a signed SHA-256."""

    def __init__(self, pair: BufferedRWPair, secret: bytes, nonce: str) -> None:
        self._pair, self._secret, self._nonce = pair, secret, nonce

    def write(self, document: Dict[str, Any]) -> None:
        """Send one signed document."""
        body = json.dumps(document)
        self._pair.write(f"{self._sign(body)} {body}\n".encode())
        self._pair.flush()

    def read(self) -> Dict[str, Any]:
        """The next document; CopyError where it is not signed with the job's secret for this connection."""
        signature, _, body = self._pair.readline(4096).decode().rstrip("\n").partition(" ")
        if not hmac.compare_digest(signature, self._sign(body)):
            raise CopyError("a request or answer without this job's signature")
        document: Dict[str, Any] = json.loads(body)
        return document

    def _sign(self, body: str) -> str:
        return hmac.new(self._secret, f"copy {self._nonce} {body}".encode(), hashlib.sha256).hexdigest()

    def send_file(self, path: str) -> None:
        """Send a file's bytes; a header has announced them."""
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
                self._pair.write(chunk)
        self._pair.flush()

    def receive_file(self, header: Dict[str, Any], folder: str) -> None:
        """Take the file that `header` announces; it appears under its name once its SHA-256 is proven."""
        name, left = str(header["name"]), int(header["size"])
        if not is_name(name):
            raise CopyError(f"refused name: {name!r}")
        partial = os.path.join(folder, f".{name}.partial")
        digest = hashlib.sha256()
        try:
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                while left:
                    chunk = self._pair.read(min(left, _CHUNK_BYTES))
                    if not chunk:
                        raise CopyError(f"{name}: the connection ended {left} bytes early")
                    digest.update(chunk)
                    file.write(chunk)
                    left -= len(chunk)
                file.flush()
                os.fsync(file.fileno())
            if digest.hexdigest() != header["sha256"]:
                raise CopyError(f"{name}: the copy differs from the original")
            os.utime(partial, ns=(int(header["mtime_ns"]), int(header["mtime_ns"])))
            os.replace(partial, os.path.join(folder, name))
        finally:
            if os.path.exists(partial):
                os.unlink(partial)


def _header(folder: str, item: Saved) -> Dict[str, Any]:
    """What announces a file: name, bytes, time of its last change, SHA-256."""
    digest = hashlib.sha256()
    with open(os.path.join(folder, item.name), "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
        size = file.tell()
    return {"name": item.name, "size": size, "mtime_ns": item.mtime_ns, "sha256": digest.hexdigest()}


def _keep_newest(folder: str, received: str) -> None:
    """Of the copies made here, keep the newest; files that somebody else put there are left alone."""
    manifest = os.path.join(folder, _MANIFEST)
    try:
        with open(manifest, encoding="utf-8") as file:
            names = set(json.load(file))
    except (FileNotFoundError, ValueError):
        names = set()
    names.add(received)
    copies = [item for item in saved(folder) if item.name in names]
    for item in copies[:-_KEPT]:
        os.unlink(os.path.join(folder, item.name))
    write_atomic(manifest, json.dumps([item.name for item in copies[-_KEPT:]]).encode())
