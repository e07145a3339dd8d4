"""A checkpoint over a connection: JSON lines signed with the job's secret, and files proven by a signed SHA-256.

A checkpoint is `{"name", "folder", "files", "size"}`, then each file as `{"path", "size", "mtime_ns"}`, its bytes, and
`{"sha256"}`. It is staged beside the others, and gets its name when all of it is proven. A line's signature holds for
its place in this connection and its direction, and a file's digest for the line before its bytes: none can be moved,
left out, sent again or turned back. No byte is read as more than bytes before its signature is.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import shutil
from io import BufferedRWPair
from typing import Any, Dict, List

from .checkpoints import File, Saved, is_name, newest_steps, saved
from .folder import write_atomic

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 64 << 10
_KEPT = 2
_MANIFEST = ".nodectl-copies"


class CopyError(Exception):
    """A copy could not be made; the text says why."""


class ChangedError(CopyError):
    """The program has written to the checkpoint while it was copied; it is copied again."""


class SignedStream:
    """A connection whose documents carry the job's signature for this connection's nonces, their place and side.

    `takes`: this is the side that was connected to.
    """

    def __init__(self, pair: BufferedRWPair, secret: bytes, nonces: bytes, takes: bool) -> None:
        self._pair, self._secret, self._nonces, self._takes = pair, secret, nonces, takes
        self._written = self._read = 0

    def write(self, document: Dict[str, Any]) -> bytes:
        """Send one signed document; the line's text."""
        body = json.dumps(document).encode()
        self._written += 1
        self._pair.write(self._sign(self._takes, self._written, body) + b" " + body + b"\n")
        self._pair.flush()
        return body

    def read(self) -> Dict[str, Any]:
        """The next document; CopyError where it is not signed for this place of this connection, or is none."""
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
            said = self.write({"path": file.path, "size": file.size_bytes, "mtime_ns": file.mtime_ns})
            digest, left = hashlib.sha256(said), file.size_bytes
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
        """Take the checkpoint that `header` announces into `folder`; nothing of it is there before all is proven.

        A folder that is there keeps what only it has: each host may have written its own part.
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
        said = self._line()
        header = _document(said)
        path = str(header["path"])
        if path and any(part in ("", ".", "..") for part in path.split("/")):
            raise CopyError(f"refused name: {path!r}")
        target = os.path.join(staged, path) if path else staged
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        made = File(path, int(header["size"]), int(header["mtime_ns"]))
        if not 0 <= made.size_bytes <= most_bytes:
            raise CopyError(f"{path or 'the file'}: {made.size_bytes} bytes, where {most_bytes} are left of the size")
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            digest = self._receive_bytes(made, file, hashlib.sha256(said))
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
    """CopyError where the checkpoint would fill the disk."""
    free_bytes = shutil.disk_usage(folder).free
    if size_bytes > free_bytes:
        raise CopyError(f"no room in {folder}: {_mib(size_bytes)} to take, {_mib(free_bytes)} free")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"


def text(item: Saved) -> str:
    """`checkpoint-500 (7 files, 12.0 MiB)`."""
    counted = f"{len(item.files)} files, " if item.is_folder else ""
    return f"{item.name} ({counted}{_mib(item.size_bytes)})"


def place(staged: str, target: str) -> None:
    """Give what is staged its name: in one step, or file by file where the folder is there already."""
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
    """Of the copies made here keep the newest two steps; what somebody else put there is left alone."""
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
    if isinstance(manifest, list):  # of a version that copied files only
        return {str(name): [""] for name in manifest}
    return {str(name): [str(path) for path in paths] for name, paths in manifest.items()}


def _remove_copy(path: str, files: List[str]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, file) if file else path)
    for root, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # holds what is not ours
            os.rmdir(root)
