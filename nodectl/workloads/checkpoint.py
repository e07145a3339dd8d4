"""How a training state lies on disk: whole or not at all, the newest ones kept, a broken one recognised."""

from __future__ import annotations

import io
import os
import re
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KEPT = 2
_NAME = re.compile(r"step-(\d{8,})\.pt")


def path_of(folder: Path, step: int) -> Path:
    """Return where the state after `step` steps lies."""
    return folder / f"step-{step:08d}.pt"


def found(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, newest first; unfinished files are not among them."""
    if not folder.is_dir():
        return []
    steps = {int(match.group(1)): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps, reverse=True)]


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write `state` so that a reader sees the whole file or none, then drop all but the newest `KEPT` up to `step`.

    OSError if the folder cannot be written; what was there before stays.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path_of(folder, step)
    unfinished = path.with_suffix(".pt.tmp")
    try:
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        unfinished.unlink(missing_ok=True)
        raise OSError(f"cannot save {path}: {error}") from error
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # a later one is there only when it could not be read: it must not push this one out
    for old in [other for other in found(folder) if other.name <= path.name][KEPT:]:
        old.unlink(missing_ok=True)
    return path


def prepare(folder: Path) -> None:
    """Make the folder; OSError if no checkpoint could be written, before anything is computed for one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def set_aside(folder: Path) -> None:
    """Move what an earlier training left into `folder`/earlier, if no resume looks."""
    earlier = folder / "earlier"
    for path in found(folder):
        earlier.mkdir(mode=0o700, exist_ok=True)
        path.replace(earlier / path.name)
    for old in found(earlier)[KEPT:]:
        old.unlink(missing_ok=True)


def newest(folder: Path, tell: Callable[[str], None]) -> bytes | None:
    """Return the newest checkpoint that can be read whole, as bytes; `tell` hears of each one that cannot."""
    for path in found(folder):
        try:
            data = path.read_bytes()
            _verify(data)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            tell(f"checkpoint {path} is unusable ({error}); trying the one before it")
            continue
        tell(f"resuming from {path}")
        return data
    return None


def _verify(data: bytes) -> None:
    # torch's own reader skips the checksums, so a flipped bit would go unseen into the weights
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"checksum of {broken} is wrong")
    try:
        load(data)
    except Exception as error:
        raise ValueError(str(error).splitlines()[0]) from error


def load(data: bytes) -> dict[str, Any]:
    """Return the state in `data`, on the CPU; tensors and plain values only, never code."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state
