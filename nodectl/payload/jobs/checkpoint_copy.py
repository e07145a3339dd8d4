"""How a job's checkpoints reach a second host and come back: a process beside the supervisor, signed TCP.

Nodes hold no SSH keys of each other and the job outlives the operator's connection, so neither can carry the copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import threading
import time
from io import BufferedRWPair
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ..common.sockets import family
from . import syscalls
from .checkpoints import File, Saved, is_name, newest_steps, resolve, saved
from .folder import JobFolder, write_atomic

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 64 << 10
_KEPT = 2
_MANIFEST = ".nodectl-copies"


class CopyError(Exception):
    """Raised when a copy could not be made; the text says why."""


class ChangedError(CopyError):
    """Raised when the program wrote to the checkpoint during its copy; it is copied again later."""


class SignedStream:
    """A connection whose documents carry the job's signature for this connection's nonces, their place and side.

    `takes`: this is the side that was connected to.
    """

    def __init__(self, pair: BufferedRWPair, secret: bytes, nonces: bytes, takes: bool) -> None:
        self._pair, self._secret, self._nonces, self._takes = pair, secret, nonces, takes
        self._written = self._read = 0

    def write(self, document: Dict[str, Any]) -> bytes:
        """Send one signed document, and return the line that was sent."""
        body = json.dumps(document).encode()
        self._written += 1
        self._pair.write(self._sign(self._takes, self._written, body) + b" " + body + b"\n")
        self._pair.flush()
        return body

    def read(self) -> Dict[str, Any]:
        """Return the next document; raise CopyError where it is none, or not signed for its place."""
        return _document(self._line())

    def _line(self) -> bytes:
        signature, _, body = self._pair.readline(_LINE_BYTES).rstrip(b"\n").partition(b" ")
        self._read += 1
        if not hmac.compare_digest(signature, self._sign(not self._takes, self._read, body)):
            raise CopyError("a request or answer without this job's signature")
        return body

    def _sign(self, by_taker: bool, place: int, body: bytes) -> bytes:
        signed = b"copy %b %d %d %b" % (self._nonces, by_taker, place, body)
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest().encode()

    def send(self, folder: str, item: Saved) -> None:
        """Send the files of a checkpoint; CopyError where the program writes to one meanwhile."""
        for file in item.files:
            header = self.write({"path": file.path, "size": file.size_bytes, "mtime_ns": file.mtime_ns})
            digest, left = hashlib.sha256(header), file.size_bytes
            with open(_path(folder, item, file), "rb") as source:
                while left:
                    chunk = source.read(min(left, _CHUNK_BYTES))
                    if not chunk:
                        raise ChangedError(file.path)
                    digest.update(chunk)
                    self._pair.write(chunk)
                    left -= len(chunk)
                stat = os.fstat(source.fileno())
            if (stat.st_size, stat.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
                raise ChangedError(file.path)
            self.write({"sha256": digest.hexdigest()})

    def receive(self, header: Dict[str, Any], folder: str) -> Saved:
        """Receive the checkpoint that `header` announces into `folder`; it appears there after all of it is verified.

        An existing folder keeps files that only it has: each host may have written a part of the checkpoint.
        """
        name = str(header["name"])
        if not is_name(name):
            raise CopyError(f"refused name: {name!r}")
        staged = os.path.join(folder, f".{name}.partial")
        _remove(staged)
        try:
            files, left = [], int(header["size"])
            for _ in range(int(header["files"])):
                files.append(self._receive_file(staged, left))
                left -= files[-1].size_bytes
            place(staged, os.path.join(folder, name))
        finally:
            _remove(staged)
        return Saved(name, bool(header["folder"]), tuple(files))

    def _receive_file(self, staged: str, most_bytes: int) -> File:
        line = self._line()
        header = _document(line)
        path = str(header["path"])
        if path and any(part in ("", ".", "..") for part in path.split("/")):
            raise CopyError(f"refused name: {path!r}")
        target = os.path.join(staged, path) if path else staged
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        made = File(path, int(header["size"]), int(header["mtime_ns"]))
        if not 0 <= made.size_bytes <= most_bytes:
            raise CopyError(f"{path or 'the file'}: {made.size_bytes} bytes, where {most_bytes} are left of the size")
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            digest = self._receive_bytes(made, file, hashlib.sha256(line))
            file.flush()
            os.fsync(file.fileno())
        if self.read()["sha256"] != digest:
            raise CopyError(f"{path or os.path.basename(target)}: the copy differs from the original")
        os.utime(target, ns=(made.mtime_ns, made.mtime_ns))
        return made

    def _receive_bytes(self, made: File, file: Any, digest: Any) -> str:
        left = made.size_bytes
        while left:
            chunk = self._pair.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise CopyError(f"{made.path or 'the file'}: the connection ended {left} bytes early")
            digest.update(chunk)
            file.write(chunk)
            left -= len(chunk)
        return str(digest.hexdigest())


def _document(body: bytes) -> Dict[str, Any]:
    document = json.loads(body)
    if not isinstance(document, dict):
        raise CopyError("a signed line that is no request or answer")
    return document


def _path(folder: str, item: Saved, file: File) -> str:
    return os.path.join(folder, item.name, file.path) if file.path else os.path.join(folder, item.name)


def header(item: Saved) -> Dict[str, Any]:
    """Return what announces a checkpoint."""
    return {"name": item.name, "folder": item.is_folder, "files": len(item.files), "size": item.size_bytes}


def check_room(folder: str, size_bytes: int) -> None:
    """Raise CopyError if the checkpoint would fill the disk."""
    free_bytes = shutil.disk_usage(folder).free
    if size_bytes > free_bytes:
        raise CopyError(f"no room in {folder}: {_mib(size_bytes)} to take, {_mib(free_bytes)} free")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"


def text(item: Saved) -> str:
    """Return the checkpoint as messages name it: `checkpoint-500 (7 files, 12.0 MiB)`."""
    counted = f"{len(item.files)} files, " if item.is_folder else ""
    return f"{item.name} ({counted}{_mib(item.size_bytes)})"


def place(staged: str, target: str) -> None:
    """Move a staged checkpoint to its final name: in one step, or file by file into a folder that already exists."""
    if os.path.isdir(staged) and os.path.isdir(target) and not os.path.islink(target):
        for name in os.listdir(staged):
            place(os.path.join(staged, name), os.path.join(target, name))
        return
    if os.path.lexists(target) and os.path.isdir(staged) is not os.path.isdir(target):
        raise CopyError(f"{target} is in the way: one is a file, the other a folder")
    os.replace(staged, target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def keep_newest(folder: str, received: Saved) -> None:
    """Keep the newest two steps of the copies made here; what somebody else put there is left alone."""
    copies = _read_manifest(folder)
    copies[received.name] = sorted({*copies.get(received.name, []), *(file.path for file in received.files)})
    items = [item for item in saved(folder) if item.name in copies]
    kept = {item.name for item in newest_steps(items, _KEPT)}
    for item in items:
        if item.name not in kept:
            _remove_copy(os.path.join(folder, item.name), copies[item.name])
    write_atomic(os.path.join(folder, _MANIFEST), json.dumps({name: copies[name] for name in sorted(kept)}).encode())


def _read_manifest(folder: str) -> Dict[str, List[str]]:
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    if isinstance(manifest, list):  # written by a version that copied only files
        return {str(name): [""] for name in manifest}
    return {str(name): [str(path) for path in paths] for name, paths in manifest.items()}


def _remove_copy(path: str, files: List[str]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, file) if file else path)
    for root, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # holds what is not ours
            os.rmdir(root)


_DRAIN_S = 60.0
_SILENCE_S = 30.0
_SCAN_S = 0.5
_SCAN_SHARE = 0.02  # part of a core that may be spent on scanning a folder of many files
_FOLDER_SETTLES_S = 2.0  # a folder is written file by file
_RETRIES = 5
_NONCE_BYTES = 32
_HELLO_S = 5.0  # for both sides' nonces to arrive
_WAITING = 64  # connections that have not authenticated yet; beyond that the oldest is closed
_REVIVED_S = 1.0

Say = Callable[[str], None]


class Courier:
    """The supervisor's view of the process that copies checkpoints.

    `pipe` is readable when the process has written a message (-1: no process); `ready`: the ranks may start; `note` is
    its last message; `problem` says why the newest checkpoint is not on this host.
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
        self.pipe = -1
        self._text = ""
        self._revived_s: Optional[float] = None  # when to restart a listener that died
        if self._checkpoint is not None:
            self.folder = resolve(self._checkpoint["dir"])
            os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def start(self) -> None:
        """Fork the process that sends or receives checkpoints, if this host is one of the two."""
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
        self.pipe = reader

    def _body(self) -> Optional[Callable[[Say], None]]:
        checkpoint, rank, hosts = self._checkpoint, self._plan["rank"], self._plan["hosts"]
        members, member = self._plan["members"], self._plan["member"]
        if checkpoint is None or checkpoint["mode"] != "local" or self.folder is None:
            return None
        folder, port, secret = self.folder, int(self._plan["heartbeat_port"]), self._job.secret()
        source = checkpoint.get("restore_from")
        if rank == 0:
            self.ready = source is None
            giver = None if source is None else members[source]
            return lambda say: _copy_from_first(hosts[1:2], giver, port, secret, folder, say)
        if rank == 1 or member == source:
            return lambda say: _serve(members[member]["address"], port, secret, folder)
        return None

    def listen(self) -> None:
        """Read the messages that the process has written since the last call."""
        if self.pipe < 0:
            return
        try:
            data = os.read(self.pipe, 65536)
        except BlockingIOError:
            return
        if not data:
            os.close(self.pipe)
            self.pipe = -1
        *lines, self._text = (self._text + data.decode(errors="replace")).split("\n")
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "problem":
                self.problem = rest
            self.note = rest or self.note

    def reaped(self, pid: int, _status: int) -> None:
        """Note that the copying process has ended."""
        if pid == self.pid:
            self.listen()
            self.pid = 0
            if self._plan["rank"] != 0:
                self._revived_s = time.monotonic() + _REVIVED_S
            if not self.ready and not self.problem:
                self.problem = "the process that fetches the newest checkpoint died"

    def revive(self, now_s: float) -> bool:
        """Restart a listener that died, once its time has come; True if it was restarted."""
        if self._revived_s is None or now_s < self._revived_s or self.pipe >= 0:
            return False
        self._revived_s = None
        self.start()
        return self.pid != 0

    def drained(self, now_s: float) -> bool:
        """Tell whether nothing is left to copy; the first call asks the process for the last copy."""
        if self.pid == 0 or self._plan["rank"] != 0:
            return True
        if self._draining_s is None:
            self._draining_s = now_s
            os.kill(self.pid, signal.SIGTERM)
        late = now_s - self._draining_s > _DRAIN_S
        if late:
            self.note = f"copy not finished {_DRAIN_S:g} s after the end: the second host lacks the last checkpoint"
        return late

    def end(self) -> None:
        """Kill the process; a half-made copy does no harm, since it does not bear a checkpoint's name yet."""
        self._revived_s = None
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


def _run(body: Callable[[Say], None], writer: int, supervisor: int) -> None:
    """Run the child's work; it dies with the supervisor, and never returns."""

    def say(line: str) -> None:
        os.write(writer, line.replace("\n", " ").encode(errors="backslashreplace")[:1000] + b"\n")

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
    second: List[Dict[str, str]], giver: Optional[Dict[str, str]], port: int, secret: bytes, folder: str, say: Say
) -> None:
    """Run the first host's part: fetch newer checkpoints from `giver`, then copy each new one to `second`, if any.

    After SIGTERM it ends with one more round.
    """
    ending: List[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    fetched: List[str] = []
    if giver is not None:
        fetched = _fetch((giver["address"], port), secret, folder)
        say(f"ready fetched {', '.join(fetched)} from {giver['name']}")
    if not second:
        return
    (taker,) = second
    there = saved(folder)
    # of the checkpoints that exist already, only the newest is copied
    copied: Set[Saved] = set(there) - set(newest_steps(there, 1))
    if giver == taker:
        copied |= {item for item in there if item.name in fetched}
    seen_s: Dict[Saved, float] = {}
    while True:
        last_round, began_s = bool(ending), time.monotonic()
        there = saved(folder)
        looked_s = time.monotonic() - began_s
        seen_s = {item: seen_s.get(item, began_s) for item in there}
        for item in there:
            if item not in copied and (last_round or _is_settled(item, began_s - seen_s[item])):
                outcome = _try_put((taker["address"], port), secret, folder, item)
                if not outcome.startswith("not copied"):
                    copied.add(item)
                if outcome:
                    say(f"copy {outcome} ({taker['name']})")
        if last_round:
            return
        copied &= set(there)
        time.sleep(max(_SCAN_S, looked_s / _SCAN_SHARE))


def _is_settled(item: Saved, unchanged_s: float) -> bool:
    """Tell whether a checkpoint is complete: a program that writes it in place has then stopped changing it."""
    return unchanged_s >= _FOLDER_SETTLES_S if item.is_folder else unchanged_s > 0


def _try_put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved) -> str:
    """Copy one checkpoint; return `copied: NAME`, `not copied: NAME: REASON`, or "" if it changed meanwhile."""
    try:
        _put(peer, secret, folder, item)
    except (FileNotFoundError, ChangedError):
        return ""
    except (OSError, ValueError, KeyError, CopyError) as error:
        return f"not copied: {item.name}: {error}"
    return f"copied: {text(item)}"


def _put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved) -> None:
    """Copy one checkpoint to the peer; raise CopyError or OSError if that fails."""
    with _connected(peer, secret) as stream:
        stream.write({**header(item), "op": "put"})
        _agreed(stream)
        stream.send(folder, item)
        _agreed(stream)


def _agreed(stream: SignedStream) -> None:
    answer = stream.read()
    if not answer["ok"]:
        raise CopyError(str(answer["why"]))


def _fetch(peer: Tuple[str, int], secret: bytes, folder: str) -> List[str]:
    """Fetch the peer's newest checkpoint if it is newer than all on this host; return the names of what was fetched."""
    newest_ns = max((item.mtime_ns for item in saved(folder)), default=-1)
    for attempt in range(_RETRIES):
        try:
            with _connected(peer, secret) as stream:
                stream.write({"op": "get", "newer_than_ns": newest_ns})
                announced = [stream.read() for _ in range(int(stream.read()["items"]))]
                check_room(folder, sum(int(header["size"]) for header in announced))
                return [stream.receive(header, folder).name for header in announced]
        except ConnectionRefusedError:  # the peer's supervisor is still starting
            if attempt + 1 == _RETRIES:
                raise
            time.sleep(1)
    raise CopyError("no answer")


def _serve(address: str, port: int, secret: bytes, folder: str) -> None:
    """Receive and send checkpoints until this process is ended.

    Runs on the second host, or on the one with the newest checkpoint. Only peers that authenticate as the job's are
    served; a stranger's connection delays nobody, even if it sends nothing.
    """
    listener = socket.create_server((address, port), family=family(address))
    waiting: List[socket.socket] = []
    turn = threading.Lock()
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it has hung up, or there are too many
            time.sleep(_SCAN_S)
            continue
        waiting.append(connection)
        for oldest in waiting[:-_WAITING]:
            with contextlib.suppress(OSError, ValueError):
                waiting.remove(oldest)
                oldest.shutdown(socket.SHUT_RDWR)
        attend = threading.Thread(target=_attend, args=(connection, secret, folder, waiting, turn), daemon=True)
        try:
            attend.start()
        except RuntimeError:  # no more threads
            connection.close()


def _attend(
    connection: socket.socket, secret: bytes, folder: str, waiting: List[socket.socket], turn: threading.Lock
) -> None:
    """Serve one connection until it ends; its errors affect no other connection."""
    try:
        with connection, connection.makefile("rwb") as pair:
            stream = SignedStream(pair, secret, _nonces(connection, takes=True), takes=True)
            connection.settimeout(_SILENCE_S)
            request = stream.read()
            with contextlib.suppress(ValueError):
                waiting.remove(connection)
            with turn:
                _answer(stream, request, folder)
    except Exception as error:
        # not by Python's own stream, whose lock another thread may have held when this process was forked
        os.write(1, f"checkpoint copy: {type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        with contextlib.suppress(ValueError):
            waiting.remove(connection)


def _nonces(connection: socket.socket, takes: bool) -> bytes:
    """Exchange nonces; return both, the accepting side's first; raise OSError if the peer's is late."""
    ours, theirs, ends_s = os.urandom(_NONCE_BYTES), b"", time.monotonic() + _HELLO_S
    connection.settimeout(_HELLO_S)
    connection.sendall(ours)
    while len(theirs) < _NONCE_BYTES:
        connection.settimeout(max(0.001, ends_s - time.monotonic()))
        data = connection.recv(_NONCE_BYTES - len(theirs))
        if not data:
            raise ConnectionResetError("the other end closed the connection")
        theirs += data
    return ours + theirs if takes else theirs + ours


def _answer(stream: SignedStream, request: Dict[str, Any], folder: str) -> None:
    if request["op"] == "get":
        _give(stream, folder, int(request["newer_than_ns"]))
        return
    try:
        check_room(folder, int(request["size"]))
        stream.write({"ok": True})
        keep_newest(folder, stream.receive(request, folder))
        stream.write({"ok": True})
    except (OSError, CopyError) as error:
        stream.write({"ok": False, "why": str(error)})


def _give(stream: SignedStream, folder: str, newer_than_ns: int) -> None:
    items = [item for item in newest_steps(saved(folder), 1) if item.mtime_ns > newer_than_ns]
    stream.write({"items": len(items)})
    for item in items:
        stream.write(header(item))
    for item in items:
        stream.send(folder, item)


@contextlib.contextmanager
def _connected(peer: Tuple[str, int], secret: bytes) -> Iterator[SignedStream]:
    with socket.create_connection(peer, timeout=_SILENCE_S) as connection, connection.makefile("rwb") as pair:
        stream = SignedStream(pair, secret, _nonces(connection, takes=False), takes=False)
        connection.settimeout(_SILENCE_S)
        yield stream
