"""How checkpoints travel between two hosts of a job: signed requests over TCP, whole files, renamed when proven."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import time
from io import BufferedRWPair
from typing import Any, Callable, Dict, List, Set, Tuple

from .checkpoints import Saved, is_name, saved
from .folder import write_atomic

_CHUNK_BYTES = 1 << 20
_SILENCE_S = 30.0
_KEPT = 2
_SCAN_S = 0.5
_MANIFEST = ".nodectl-copies"
_RETRIES = 5


class CopyError(Exception):
    """A copy could not be made; the text says why."""


def serve(address: str, port: int, secret: bytes, folder: str) -> None:
    """Take and give checkpoints until this process is ended."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family)
    while True:
        connection, _ = listener.accept()
        connection.settimeout(_SILENCE_S)
        with connection, connection.makefile("rwb") as stream:
            try:
                _answer(stream, secret, folder)
            except (OSError, ValueError, KeyError, CopyError) as error:
                print(f"checkpoint copy: {error}", flush=True)


def _answer(stream: BufferedRWPair, secret: bytes, folder: str) -> None:
    nonce = secrets.token_hex(16)
    stream.write(nonce.encode() + b"\n")
    stream.flush()
    request = _read_signed(stream, secret, nonce)
    if request["op"] == "put":
        try:
            _receive(stream, request, folder)
            _keep_newest(folder, request["name"])
            _write_signed(stream, secret, nonce, {"ok": True})
        except (OSError, CopyError) as error:
            _write_signed(stream, secret, nonce, {"ok": False, "why": str(error)})
    else:
        newest = saved(folder)[-1]
        _write_signed(stream, secret, nonce, _header(folder, newest))
        _send_file(stream, os.path.join(folder, newest.name))
    stream.flush()


def put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved) -> None:
    """Copy one checkpoint to the peer; CopyError or OSError where that fails."""
    with socket.create_connection(peer, timeout=_SILENCE_S) as connection, connection.makefile("rwb") as stream:
        nonce = stream.readline(100).decode().strip()
        _write_signed(stream, secret, nonce, {**_header(folder, item), "op": "put"})
        _send_file(stream, os.path.join(folder, item.name))
        answer = _read_signed(stream, secret, nonce)
    if not answer["ok"]:
        raise CopyError(str(answer["why"]))


def fetch(peer: Tuple[str, int], secret: bytes, folder: str) -> str:
    """Get the peer's newest checkpoint; its name."""
    for attempt in range(_RETRIES):
        try:
            with socket.create_connection(peer, timeout=_SILENCE_S) as connection, connection.makefile("rwb") as stream:
                nonce = stream.readline(100).decode().strip()
                _write_signed(stream, secret, nonce, {"op": "get"})
                header = _read_signed(stream, secret, nonce)
                _receive(stream, header, folder)
                return str(header["name"])
        except ConnectionRefusedError:  # the peer's supervisor is still starting
            if attempt + 1 == _RETRIES:
                raise
            time.sleep(1)
    raise CopyError("no answer")


def push_new(
    peer: Tuple[str, int], secret: bytes, folder: str, ending: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Copy each checkpoint that appears, until `ending()`; the newest of those that are there already is one."""
    done: Set[Saved] = set(saved(folder)[:-1])
    before: List[Saved] = []
    while True:
        last_round = ending()
        now = saved(folder)
        for item in now:
            # written in place, a file is complete when it has stopped changing
            if item not in done and (item in before or last_round) and _try_put(peer, secret, folder, item, say):
                done.add(item)
        if last_round:
            return
        before = now
        time.sleep(_SCAN_S)


def _try_put(peer: Tuple[str, int], secret: bytes, folder: str, item: Saved, say: Callable[[str], None]) -> bool:
    try:
        put(peer, secret, folder, item)
    except FileNotFoundError:  # the program has pruned it meanwhile
        return True
    except (OSError, ValueError, KeyError, CopyError) as error:
        say(f"not copied: {item.name}: {error}")
        return False
    say(f"copied: {item.name}")
    return True


def _header(folder: str, item: Saved) -> Dict[str, Any]:
    digest = hashlib.sha256()
    with open(os.path.join(folder, item.name), "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
        size = file.tell()
    return {"name": item.name, "size": size, "mtime_ns": item.mtime_ns, "sha256": digest.hexdigest()}


def _send_file(stream: BufferedRWPair, path: str) -> None:
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            stream.write(chunk)
    stream.flush()


def _receive(stream: BufferedRWPair, header: Dict[str, Any], folder: str) -> None:
    name, left = str(header["name"]), int(header["size"])
    if not is_name(name):
        raise CopyError(f"refused name: {name!r}")
    path = os.path.join(folder, name)
    partial = os.path.join(folder, f".{name}.partial")
    digest = hashlib.sha256()
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            while left:
                chunk = stream.read(min(left, _CHUNK_BYTES))
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
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


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


def _write_signed(stream: BufferedRWPair, secret: bytes, nonce: str, document: Dict[str, Any]) -> None:
    body = json.dumps(document)
    stream.write(f"{_sign(secret, nonce, body)} {body}\n".encode())
    stream.flush()


def _read_signed(stream: BufferedRWPair, secret: bytes, nonce: str) -> Dict[str, Any]:
    signature, _, body = stream.readline(4096).decode().rstrip("\n").partition(" ")
    if not hmac.compare_digest(signature, _sign(secret, nonce, body)):
        raise CopyError("a request or answer without this job's signature")
    document: Dict[str, Any] = json.loads(body)
    return document


def _sign(secret: bytes, nonce: str, body: str) -> str:
    return hmac.new(secret, f"copy {nonce} {body}".encode(), hashlib.sha256).hexdigest()
