"""Files that a reader sees as they were or as they will be, never in between."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `path` as a whole, or leave it as it is; text in UTF-8, undecodable bytes as they were read.

    With `sync` it is on the disk when this returns. OSError where the folder cannot be written.
    """
    data = content.encode("utf-8", errors="surrogateescape") if isinstance(content, str) else content
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(handle, mode)
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(handle)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
