"""A job's checkpoint folder: its path on this host, and the token that shows which hosts see the same folder."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict

from .folder import JobFolderError, check_id, state_root, write_atomic


def resolve(folder: str) -> str:
    """Return the folder's absolute path; `state:NAME` means a folder in nodectl's state on this node."""
    if folder.startswith("state:"):
        return os.path.join(state_root(), "checkpoints", check_id(folder[len("state:") :]))
    if not os.path.isabs(folder):
        raise JobFolderError(f"the checkpoint folder must be an absolute path: {folder!r}")
    return folder


def survey(folder: str, token: str, *, mark: bool) -> Dict[str, Any]:
    """Create the folder if it is missing, and write (`mark`) or look for the token."""
    path = resolve(folder)
    os.makedirs(path, mode=0o700, exist_ok=True)
    sign = _token_path(path, token)
    if mark:
        write_atomic(sign, token.encode())
    return {"path": path, "sees_token": os.path.exists(sign)}


def clear_token(folder: str, token: str) -> None:
    """Remove the token that `survey` left."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_token_path(resolve(folder), token))


def _token_path(path: str, token: str) -> str:
    return os.path.join(path, f".nodectl-{check_id(token)}")
