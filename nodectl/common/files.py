"""Files: named after hosts, replaced so that a reader sees old or new and never a mixture, and read as JSON."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from nodectl.common import bounded_json
from nodectl.common.paths import places_to
from nodectl.errors import UsageError

_NAME_CHARACTERS = "@+:,=~"
_OPEN_FILES = ("/dev/fd/", "/dev/stdout", "/dev/stderr")


def folder_name(host: str) -> str:
    """Return the name of a host's folder: one path component, whatever the host is called."""
    quoted = quote(host, safe=_NAME_CHARACTERS, errors="surrogatepass") or "%00"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def local_path(folder: Path, *names: str) -> Path:
    """Return a path right below `folder` for names that somebody else gave: one component, whatever they hold."""
    return folder / folder_name(".".join(names))


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `path` as a whole, or leave it as it is; text in UTF-8, undecodable bytes as they were read.

    With `sync` it is on the disk when this returns. A link stays, and its target is replaced; an existing file keeps
    its owner, and gives no more rights than before. A device (/dev/stdout) and a pipe are written to. OSError if the
    folder cannot be written, or the path leads through another login's link.
    """
    data = content.encode("utf-8", errors="surrogateescape") if isinstance(content, str) else content
    is_open = str(path).startswith(_OPEN_FILES)
    place = path if is_open else _followed(path)
    if is_open or (place.exists() and not place.is_file()):
        with place.open("ab") as stream:
            stream.write(data)
        return
    draft = place.with_name(f".{place.name[:200]}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            _as_before(stream.fileno(), place, mode)
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _followed(path: Path) -> Path:
    for place in places_to(path.absolute()):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            reason = f"a link of login {status.st_uid}, who decides where it leads; name the file itself"
            raise PermissionError(errno.EPERM, reason, str(place))
    return Path(os.path.realpath(path))


def _as_before(handle: int, place: Path, mode: int) -> None:
    """Give the draft the owner of the file that it replaces, and of `mode` the rights that this one gives."""
    with suppress(FileNotFoundError):
        before = place.lstat()
        mode &= stat.S_IMODE(before.st_mode)
        if os.geteuid() == 0:
            os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, mode)


def read_json(path: Path, remedy: str) -> Any:
    """Return what an operator's file holds; UsageError with the remedy if it cannot be read or is no JSON."""
    text = read_text(path, remedy)
    try:
        return bounded_json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}", remedy) from error


def read_document(path: Path, schema: str, remedy: str) -> dict[str, Any]:
    """Return the document of this schema that an operator's file holds; UsageError with the remedy if it holds none."""
    document = read_json(path, remedy)
    found = document.get("schema") if isinstance(document, dict) else None
    if found != schema:
        raise UsageError(f"{path}: no {schema} in it (its schema is {found!r})", remedy)
    return cast("dict[str, Any]", document)


def read_text(path: Path, remedy: str) -> str:
    """Return what an operator's file holds; UsageError with the remedy if it cannot be read or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text: {error}", remedy) from error
