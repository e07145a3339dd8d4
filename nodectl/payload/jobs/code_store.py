"""Files of a project that earlier launches brought to this node, by their content: only what is new travels again."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from typing import Any, Dict, List

from .folder import JobFolderError, state_root

MANIFEST, BLOBS = "files.json", "blobs"
_MOST_TOLD = 20_000
_FRESH_S = 3600.0
_BLOCK_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def store_root() -> str:
    """Where the projects' files lie."""
    return os.path.join(state_root(), "code")


def kept(project: str) -> List[str]:
    """SHA-256 of the files that are there; a project that is not known has none."""
    try:
        names = os.listdir(_folder(project)) if project else []
    except OSError:
        return []
    return sorted(name for name in names if _SHA256.fullmatch(name))[:_MOST_TOLD]


def _folder(project: str) -> str:
    if not _NAME.fullmatch(project):
        raise JobFolderError(f"{project!r} is not the name of a project")
    return os.path.join(store_root(), project)


def assemble(job_folder: str) -> None:
    """Make `code/` of what came and what is kept, each file proven; nothing where the whole code came."""
    manifest = os.path.join(job_folder, MANIFEST)
    if not os.path.exists(manifest):
        return
    with open(manifest, encoding="utf-8") as file:
        document = json.load(file)
    store, blobs = _folder(document["project"]), os.path.join(job_folder, BLOBS)
    os.makedirs(store, mode=0o700, exist_ok=True)
    for name in os.listdir(blobs) if os.path.isdir(blobs) else ():
        os.replace(os.path.join(blobs, name), os.path.join(store, name))
    for place, (digest, executable) in document["files"].items():
        _copy(store, digest, _inside(os.path.join(job_folder, "code"), place), executable)
    _prune(store, document["files"])
    shutil.rmtree(blobs, ignore_errors=True)
    os.unlink(manifest)


def _inside(code: str, place: str) -> str:
    path = os.path.normpath(os.path.join(code, place))
    if not path.startswith(code + os.sep):
        raise JobFolderError(f"{place!r} is no place in the code")
    return path


def _copy(store: str, digest: str, path: str, executable: bool) -> None:
    """A copy, not a link: a job may write into its own files."""
    import hashlib  # the other commands need not wait for it

    if not _SHA256.fullmatch(digest):
        raise JobFolderError(f"{digest!r} is no SHA-256")
    source, proof = os.path.join(store, digest), hashlib.sha256()
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
        if os.path.isdir(store) and not os.listdir(store):
            os.rmdir(store)


def _remove_old(path: str) -> None:
    try:
        if time.time() - os.path.getmtime(path) > _FRESH_S:
            os.unlink(path)
    except FileNotFoundError:  # another one removes it, too
        return
