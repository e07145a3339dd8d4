"""Files: named after hosts, replaced so that a reader sees old or new and never a mixture, and read as JSON."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodectl.common import bounded_json
from nodectl.errors import UsageError

_NAME_CHARACTERS = "@+:,=~"
_OPEN_FILES = Path("/dev/fd")
_MOST_LINKS = 40


def folder_name(host: str) -> str:
    """Return the name of a host's folder: one path component, whatever the host is called."""
    quoted = quote(host, safe=_NAME_CHARACTERS, errors="surrogatepass") or "%00"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def local_path(folder: Path, *names: str) -> Path:
    """Return a path right below `folder` for a name that somebody else gave: of a node, a job, a recording.

    The only way from such a name to a file of ours: `names`, joined by dots, are one component of it, whatever they
    hold.
    """
    return folder / folder_name(".".join(names))


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `path` as a whole, or leave it as it is; text in UTF-8, undecodable bytes as they were read.

    With `sync` it is on the disk when this returns. A link stays, and what it leads to is replaced; a file that is
    there keeps its owner, and gives no more rights than before. A device or pipe (/dev/null) is written to, and so is a
    file that is open already (/dev/stdout, whatever the shell made it). OSError if the folder cannot be written,
    nobody reads the pipe, or a link of another login decides where the path leads.
    """
    data = content.encode("utf-8", errors="surrogateescape") if isinstance(content, str) else content
    place = _followed(path)
    if isinstance(place, int):
        with os.fdopen(os.dup(place), "wb") as stream:
            stream.write(data)
        return
    if place.exists() and not place.is_file():
        _write_into(place, data)
        return
    folder, draft = _open_folder(place.parent), f".{place.name[:200]}.{secrets.token_hex(4)}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as stream:
                _as_before(handle, place.name, folder, mode)
                stream.write(data)
                if sync:
                    stream.flush()
                    os.fsync(handle)
            os.replace(draft, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _as_before(handle: int, name: str, folder: int, mode: int) -> None:
    """Give the draft the owner of the file that it replaces, and of `mode` the rights that this one gives."""
    with suppress(FileNotFoundError):
        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode &= stat.S_IMODE(before.st_mode)
        if os.geteuid() == 0:
            os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, mode)


def _is_door(path: Path) -> bool:
    """Return whether it is a process's `root` or `cwd` in /proc: a door, and no link whose text leads there."""
    return path.name in ("root", "cwd") and str(path.parent.parent) == "/proc" and path.parent.name.isdigit()


def _open_folder(path: Path) -> int:
    """Open a folder whose path has no link; OSError if somebody has put one there meanwhile."""
    at, place = os.open("/", os.O_RDONLY | os.O_DIRECTORY), Path("/")
    for name in path.parts[1:]:
        above, place = at, place / name
        kept = 0 if _is_door(place) else os.O_NOFOLLOW
        try:
            at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | kept | os.O_CLOEXEC, dir_fd=above)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
        finally:
            os.close(above)
    return at


def _followed(path: Path) -> Path | int:
    """Return where the links lead, or the number of the open file that is meant.

    OSError if they lead in a circle, or where one is of a login that is neither root nor this one: it would decide
    which file is replaced. (The kernel prevents that in sticky folders alone, and only with protected_symlinks.)
    """
    at, rest, hops = Path("/"), list(reversed((Path.cwd() / path).parts[1:])), 0
    while rest:
        name = rest.pop()
        following = at.parent if name == ".." else at / name
        # links on Linux, and none on a Mac
        if not rest and name.isdigit() and at.resolve() == _OPEN_FILES.resolve():
            return int(name)
        try:
            status = following.lstat()
        except FileNotFoundError:
            return following.joinpath(*reversed(rest))
        if not stat.S_ISLNK(status.st_mode) or _is_door(following):
            at = following
            continue
        hops += 1
        if hops > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if status.st_uid not in (0, os.geteuid()):
            reason = f"a link of login {status.st_uid}, who decides where it leads; name the file itself"
            raise PermissionError(errno.EPERM, reason, str(following))
        target = following.readlink()
        at = Path("/") if target.is_absolute() else at
        rest += reversed(target.parts[target.is_absolute() :])
    return at


def _write_into(path: Path, data: bytes) -> None:
    """Into what is there already, a device or pipe; OSError at once if nobody reads the pipe."""
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
    """Return what an operator's file holds; UsageError with the remedy if it cannot be read or is no JSON."""
    text = read_text(path, remedy)
    try:
        return bounded_json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}", remedy) from error


def read_text(path: Path, remedy: str) -> str:
    """Return what an operator's file holds; UsageError with the remedy if it cannot be read or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text: {error}", remedy) from error
