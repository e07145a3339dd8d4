"""A checkpoint folder: which of its files and folders are checkpoints, which is newest, and which hosts share it."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..common.patterns import lazily
from .folder import JobFolderError, check_id, state_root, write_atomic

_UNFINISHED = (".tmp", ".partial", ".part", ".lock")
_UNFINISHED_FIRST = ("tmp-", "tmp_")
_NAME = lazily(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@ -]{0,199}")
# the first of these that a name has says which step it is of
_STEPS = (
    lazily(r"(?:step|iter|iteration)[-_=]?(\d+)", re.IGNORECASE),
    lazily(r"(?:checkpoint|ckpt|epoch)[-_=]?(\d+)", re.IGNORECASE),
)
_NUMBER = lazily(r"\d+")


class File(NamedTuple):
    """A regular file of a checkpoint; `path` is relative to the checkpoint folder, "" if the checkpoint is one file."""

    path: str
    size_bytes: int
    mtime_ns: int


class Saved(NamedTuple):
    """A checkpoint: a file at the top of the folder, or a folder there with all files below it."""

    name: str
    is_folder: bool
    files: Tuple[File, ...]

    @property
    def size_bytes(self) -> int:
        """Return the size of all its files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def mtime_ns(self) -> int:
        """Return when it was last written to; 0 for an empty folder."""
        return max((file.mtime_ns for file in self.files), default=0)

    @property
    def step(self) -> Optional[int]:
        """Return the step in its name (`checkpoint-500`, `model_step10.pt`, `20.pt`); None if the name has no step."""
        stem = self.name if self.is_folder else self.name.rpartition(".")[0] or self.name
        for pattern in _STEPS:
            match = pattern.search(stem)
            if match:
                return int(match[1])
        numbers = _NUMBER.findall(stem)
        return int(numbers[-1]) if numbers else None


def resolve(folder: str) -> str:
    """Return the folder's absolute path; `state:NAME` means a folder in nodectl's state on this node."""
    if folder.startswith("state:"):
        return os.path.join(state_root(), "checkpoints", check_id(folder[len("state:") :]))
    if not os.path.isabs(folder):
        raise JobFolderError(f"the checkpoint folder must be an absolute path: {folder!r}")
    return folder


def saved(folder: str) -> List[Saved]:
    """Return the checkpoints at the top of the folder, oldest first, without links and empty folders."""
    items = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_name(entry.name):
                    with contextlib.suppress(OSError):  # removed meanwhile
                        items.append(_look(entry))
    except FileNotFoundError:
        return []
    return sorted((item for item in items if item.files), key=lambda item: (item.mtime_ns, item.name))


def _look(entry: os.DirEntry[str]) -> Saved:
    if entry.is_dir(follow_symlinks=False):
        return Saved(entry.name, True, tuple(sorted(_files(entry.path, ""))))
    if entry.is_file(follow_symlinks=False):
        stat = entry.stat(follow_symlinks=False)
        return Saved(entry.name, False, (File("", stat.st_size, stat.st_mtime_ns),))
    return Saved(entry.name, False, ())


def _files(folder: str, place: str) -> Iterator[File]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{place}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                stat = entry.stat(follow_symlinks=False)
                yield File(place + entry.name, stat.st_size, stat.st_mtime_ns)


def is_name(name: str) -> bool:
    """Tell whether a name can be a finished checkpoint's, and is safe to create in another host's folder."""
    return (
        _NAME.fullmatch(name) is not None and not name.endswith(_UNFINISHED) and not name.startswith(_UNFINISHED_FIRST)
    )


def newest_steps(items: Sequence[Saved], kept: int) -> List[Saved]:
    """Return what a restart needs: the last `kept` steps, and all items without a step (`latest`, `config.json`)."""
    steps: List[int] = []
    for item in reversed(items):
        if item.step is not None and item.step not in steps:
            steps.append(item.step)
    return [item for item in items if item.step is None or item.step in steps[:kept]]


def survey(folder: str, token: str, *, mark: bool) -> Dict[str, Any]:
    """Create the folder if it is missing, write (`mark`) or look for the token, and report the newest checkpoint."""
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
