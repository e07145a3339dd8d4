"""Files of a project that earlier launches brought to this node, by their content: only what is new travels again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import IO, Any, Dict, List

from .folder import JobFolderError, state_root

MANIFEST, BLOBS = "files.json", "blobs"
_MOST_TOLD = 100_000
_TOLD_DIGITS = 16  # of 64: enough to know a file by, and short for as many files
_FRESH_S = 3600.0
_BLOCK_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def store_root() -> str:
    """Return where the projects' files lie."""
    return os.path.join(state_root(), "code")


def kept(project: str) -> List[str]:
    """Return the beginnings of the SHA-256 of the files that are there; [] for an unknown project."""
    try:
        names = os.listdir(_folder(project)) if project else []
    except OSError:
        return []
    return sorted(name[:_TOLD_DIGITS] for name in names if _SHA256.fullmatch(name))[:_MOST_TOLD]


def _folder(project: str) -> str:
    if not _NAME.fullmatch(project):
        raise JobFolderError(f"{project!r} is not the name of a project")
    return os.path.join(store_root(), project)


def assemble(job_folder: str) -> None:
    """Make `code/` of what came and what is kept, each file proven; nothing if the whole code came."""
    manifest = os.path.join(job_folder, MANIFEST)
    if not os.path.exists(manifest):
        return
    with open(manifest, encoding="utf-8") as file:
        document = json.load(file)
    store, blobs = _folder(document["project"]), os.path.join(job_folder, BLOBS)
    os.makedirs(store, mode=0o700, exist_ok=True)
    with open(blobs, "rb") as file:
        for digest, size_bytes in document["blobs"]:
            _keep(file, os.path.join(store, _checked(digest)), size_bytes)
    for place, (digest, executable) in document["files"].items():
        _copy(store, digest, _inside(os.path.join(job_folder, "code"), place), executable)
    _prune(store, document["files"])
    os.unlink(blobs)
    os.unlink(manifest)


def _checked(digest: str) -> str:
    if not _SHA256.fullmatch(digest):
        raise JobFolderError(f"{digest!r} is no SHA-256")
    return digest


def _keep(file: IO[bytes], path: str, size_bytes: int) -> None:
    """Write the next bytes of what came, as one file that is there whole or not at all."""
    new, left = f"{path}.{os.getpid()}.new", size_bytes
    with open(new, "wb") as target:
        while left > 0:
            block = file.read(min(left, _BLOCK_BYTES))
            if not block:
                raise JobFolderError("the code did not arrive whole")
            target.write(block)
            left -= len(block)
    os.replace(new, path)


def _inside(code: str, place: str) -> str:
    path = os.path.normpath(os.path.join(code, place))
    if not path.startswith(code + os.sep):
        raise JobFolderError(f"{place!r} is no place in the code")
    return path


def _copy(store: str, digest: str, path: str, executable: bool) -> None:
    """Copy a file, and make no link of it: a job may write into its own files."""
    import hashlib  # the other commands need not wait for it

    source, proof = os.path.join(store, _checked(digest)), hashlib.sha256()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700 if executable else 0o600)
    try:
        with os.fdopen(handle, "wb") as target, open(source, "rb") as file:
            for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
                proof.update(block)
                target.write(block)
        os.utime(source)
    except FileNotFoundError as error:
        raise JobFolderError(f"what was kept of the code is gone ({source}): launch again, and it is sent") from error
    if proof.hexdigest() != digest:
        os.unlink(source)
        raise JobFolderError(f"what was kept of the code was damaged ({source}): launch again, and it is sent")


def _prune(store: str, files: Dict[str, Any]) -> None:
    """Remove what this project has no more; not what another launch may just have brought."""
    wanted = {digest for digest, _ in files.values()}
    for name in set(os.listdir(store)) - wanted:
        _remove_old(os.path.join(store, name))


def clean() -> None:
    """Remove all that no launch has used within the hour."""
    root = store_root()
    for project in os.listdir(root) if os.path.isdir(root) else ():
        store = os.path.join(root, project)
        for name in os.listdir(store) if os.path.isdir(store) else ():
            _remove_old(os.path.join(store, name))
        with contextlib.suppress(OSError):  # not empty, mostly
            os.rmdir(store)


def _remove_old(path: str) -> None:
    try:
        if time.time() - os.path.getmtime(path) > _FRESH_S:
            os.unlink(path)
    except OSError:  # another one removes it, too, or nothing can be removed there: the jobs' folders tell
        return
