"""Files: named after hosts, replaced so that a reader sees old or new and never a mixture, and read as JSON."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodectl.common import bounded_json
from nodectl.errors import UsageError

_NAME_CHARACTERS = "@+:,=~"
_OPEN_FILES = Path("/proc/self/fd")


def folder_name(host: str) -> str:
    """The name of a host's folder: one path component, whatever the host is called."""
    quoted = quote(host, safe=_NAME_CHARACTERS) or "%00"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `path` as a whole, or leave it as it is; text in UTF-8, undecodable bytes as they were read.

    With `sync` it is on the disk when this returns. A link stays, and what it leads to is replaced. A device or pipe
    (/dev/null) is written to, and so is a file that is open already (/dev/stdout, whatever the shell made it).
    OSError where the folder cannot be written, or nobody reads the pipe.
    """
    data = content.encode("utf-8", errors="surrogateescape") if isinstance(content, str) else content
    place = _followed(path)
    if isinstance(place, int):
        with os.fdopen(os.dup(place), "wb") as stream:
            stream.write(data)
        return
    path = place
    if path.exists() and not path.is_file():
        _write_into(path, data)
        return
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


def _followed(path: Path) -> Path | int:
    """Where the links lead, or the number of the open file that is meant; OSError where they lead in a circle."""
    with suppress(FileNotFoundError):
        path.stat()  # the kernel says which links may be followed: another login's in /tmp may not
    while path.is_symlink():
        if path.name.isdigit() and path.parent.resolve() == _OPEN_FILES.resolve():
            return int(path.name)
        path = path.parent / path.readlink()
    return path


def _write_into(path: Path, data: bytes) -> None:
    """Into what is there already, a device or pipe; OSError at once where nobody reads the pipe."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            raise OSError(errno.ENXIO, "nobody reads this pipe", str(path)) from error
        raise
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)


def read_json(path: Path, remedy: str) -> Any:
    """What an operator's file holds; UsageError with the remedy where it cannot be read or is no JSON."""
    text = read_text(path, remedy)
    try:
        return bounded_json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}", remedy) from error


def read_text(path: Path, remedy: str) -> str:
    """What an operator's file holds; UsageError with the remedy where it cannot be read or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text: {error}", remedy) from error
