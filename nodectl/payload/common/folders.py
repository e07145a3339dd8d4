"""Folders that are there only for as long as something is done in them."""

import contextlib
from pathlib import Path
from typing import Iterator


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make what is missing of a path, and remove that again where nobody else has begun to use it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
