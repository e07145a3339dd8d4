"""What a checkpoint folder holds: which files are complete checkpoints, which is the newest, whether others see it."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Dict, List, NamedTuple

from .folder import JobFolderError, check_id, state_root, write_atomic

_UNFINISHED = (".tmp", ".partial", ".part", ".lock")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@ -]{0,199}")


class Saved(NamedTuple):
    """A complete checkpoint: a file at the top of the folder."""

    name: str
    size_bytes: int
    mtime_ns: int


def resolve(folder: str) -> str:
    """`state:NAME` is a folder of nodectl's own on this node; anything else must be absolute."""
    if folder.startswith("state:"):
        return os.path.join(state_root(), "checkpoints", check_id(folder[len("state:") :]))
    if not os.path.isabs(folder):
        raise JobFolderError(f"the checkpoint folder must be an absolute path: {folder!r}")
    return folder


def saved(folder: str) -> List[Saved]:
    """The complete checkpoints at the top of the folder, oldest first; empty where there is no folder."""
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_name(entry.name) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    files.append(Saved(entry.name, stat.st_size, stat.st_mtime_ns))
    except FileNotFoundError:
        return []
    return sorted(files, key=lambda item: (item.mtime_ns, item.name))


def is_name(name: str) -> bool:
    """A file of this name is a finished checkpoint, and may be made in another host's folder."""
    return _NAME.fullmatch(name) is not None and not name.endswith(_UNFINISHED)


def survey(folder: str, token: str, *, mark: bool) -> Dict[str, Any]:
    """Make the folder where needed, leave (`mark`) or look for the token, and say which checkpoint is the newest."""
    path = resolve(folder)
    os.makedirs(path, mode=0o700, exist_ok=True)
    sign = _token_path(path, token)
    if mark:
        write_atomic(sign, token.encode())
    newest = saved(path)[-1:]
    return {
        "path": path,
        "sees_token": os.path.exists(sign),
        "newest": {"name": newest[0].name, "mtime_ns": newest[0].mtime_ns} if newest else None,
    }


def clear_token(folder: str, token: str) -> None:
    """Remove the token that `survey` left."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_token_path(resolve(folder), token))


def _token_path(path: str, token: str) -> str:
    return os.path.join(path, f".nodectl-{check_id(token)}")
