"""The operator's own folders (XDG state and cache, never the checkout), and who else may decide what lies in them."""

from __future__ import annotations

import atexit
import errno
import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from platformdirs.unix import Unix

from nodectl.errors import UsageError

# a Mac has the same: its own state folder has a blank in its path, and no page would name it
_OWN = Unix("nodectl")
_looked_at: set[Path] = set()


def folders() -> tuple[Path, Path]:
    """Both, whether or not they are there, or can be; UsageError if a number without a login has no HOME."""
    try:
        return _OWN.user_state_path, _OWN.user_cache_path
    except RuntimeError as error:  # as platformdirs says it
        lacking = f"HOME is not set, and user id {os.geteuid()} has no login on this machine"
        raise UsageError(lacking, "export HOME=DIR, a folder of yours") from error


def state_dir() -> Path:
    """Return the state folder, made 0700 on first use; UsageError if another login decides what it holds."""
    path, _ = folders()
    if path not in _looked_at:
        refuse_open(path, "nodectl believes what its state folder holds; or set XDG_STATE_HOME to a folder of yours")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _looked_at.add(path)
    return path


def without_state() -> str:
    """Keep the state of this process in a passing folder if the state folder cannot be written; return why, or ""."""
    if reason := unwritable_state():
        os.environ["XDG_STATE_HOME"] = passing = tempfile.mkdtemp(prefix="nodectl-")
        atexit.register(shutil.rmtree, passing, ignore_errors=True)
    return reason


def unwritable_state() -> str:
    """Return why nothing can be written to the state folder (`PATH: No space left on device`), or ""."""
    try:
        with tempfile.TemporaryFile(dir=state_dir()) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f"{folders()[0]}: {error.strerror or error}"
    return ""


def cache_dir() -> Path:
    """Return the cache folder (XDG_CACHE_HOME): wheels for the lab, nothing that cannot be made again."""
    _, path = folders()
    path.mkdir(parents=True, exist_ok=True)
    return path


MOST_LINKS = 40  # as the kernel


def refuse_open(path: Path, what: str, *, whole: bool = False) -> None:
    """Raise UsageError if a login other than the operator and root can decide what is found at `path`.

    `path` need not be there; `what` says why that matters. `whole` looks at all that lies in a folder, too, but for
    hidden folders. OSError if that cannot be told.

    In a sticky folder, as /tmp is, nobody can put another in the place of what is there.
    """
    ways = list(places_to(path.absolute()))
    for place in ways:
        status = place.lstat()
        is_passed = stat.S_ISLNK(status.st_mode) or (place != ways[-1] and status.st_mode & stat.S_ISVTX)
        _refuse(place, status, what, is_written=not is_passed)
    if whole:
        for folder, folders, files in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for place in (Path(folder, name) for name in (*folders, *files)):
                if place.is_symlink():
                    refuse_open(place, what)
                else:
                    _refuse(place, place.lstat(), what, is_written=True)


def _refuse(path: Path, status: os.stat_result, what: str, *, is_written: bool) -> None:
    if status.st_uid not in _trusted_owners():
        reason = f"{path} is of login {status.st_uid}, and {what}"
        raise UsageError(reason, f"look at it, then chown -h {os.geteuid()} {path}")
    if is_written and status.st_mode & stat.S_IWOTH:
        raise UsageError(f"{path} may be written by everybody, and {what}", f"chmod o-w {path}")
    if is_written and status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid):
        raise UsageError(f"{path} may be written by its group ({status.st_gid}), and {what}", f"chmod g-w {path}")


def places_to(path: Path) -> Iterator[Path]:
    """Yield each place from the root to where the path leads, that last; it ends if nothing is."""
    at, left, links = Path("/"), list(path.parts[1:]), 0
    yield at
    while left:
        part = left.pop(0)
        if part == "..":
            at = at.parent
            continue
        if not os.path.lexists(at / part):
            return
        yield at / part
        if (at / part).is_symlink():
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = (at / part).readlink()
            at = Path("/") if target.is_absolute() else at
            left[:0] = target.parts[target.is_absolute() :]
        else:
            at = at / part


def _trusted_owners() -> set[int]:
    typed = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid(), *([int(typed)] if typed.isdecimal() else [])}


def _is_private_group(gid: int) -> bool:
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    return owner.pw_gid == gid and owner.pw_uid in _trusted_owners() and not {*group.gr_mem} - {owner.pw_name}
