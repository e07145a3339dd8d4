"""Folders that are there only for as long as something is done in them."""

import contextlib
import fcntl
import glob
import shutil
import tempfile
from pathlib import Path
from typing import Iterator

LOCK = "lock"


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make what is missing of a path, and remove that again if nobody else has begun to use it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def remove_stale(parent: Path, prefix: str) -> None:
    """Remove the folders that `own_folder` made there for programs that are gone."""
    for folder in parent.glob(glob.escape(prefix) + "*"):
        try:
            with (folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(str(folder), ignore_errors=True)
        except OSError:  # in use, or another user's
            continue


@contextlib.contextmanager
def own_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for files of this program, gone at the end; so is what had to be made for it."""
    with made(parent):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=str(parent)))
        try:
            with (folder / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield folder
        finally:
            shutil.rmtree(str(folder), ignore_errors=True)
