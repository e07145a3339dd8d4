# SPDX-License-Identifier: Apache-2.0
"""A folder of whole environments, one of them current by a link: made aside, renamed when complete, then linked."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.python_env import site_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Iterator

# whatever begins so is unfinished, and goes with the next run
PARTIAL = ".partial-"


@contextlib.contextmanager
def alone(store: Path) -> Iterator[None]:
    """One run at a time; the kernel ends the lock of a killed one."""
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle = os.open(store, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def clean(store: Path, link: Path) -> None:
    """Remove what a killed run left."""
    for left in store.glob(PARTIAL + "*"):
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        _staged(link).unlink()


def current(link: Path) -> Path | None:
    """Return the environment that the link names; None if there is no link or it leads nowhere."""
    if not link.is_symlink():
        return None
    target = Path(os.path.normpath(link.parent / os.readlink(link)))  # nodes have Python 3.8
    return target if target.is_dir() else None


def next_generation(store: Path, name: str) -> Path:
    """Return a place for one more of this name: `name`, else `name.2` and so on."""
    names = (name, *(f"{name}.{number}" for number in range(2, 1000)))
    return next(store / free for free in names if not (store / free).exists())


def activate(link: Path, target: Path) -> None:
    """Let the link name the target, in one step, and note the time: the order in which old ones go."""
    files.relabel(str(target), below=True)
    staged = _staged(link)
    with contextlib.suppress(FileNotFoundError):
        staged.unlink()
    staged.symlink_to(target)
    os.utime(target)
    staged.replace(link)


def _staged(link: Path) -> Path:
    return link.with_name(f".{link.name}.new")


def sync(folder: Path) -> None:
    """Have the file system that holds the folder write everything."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(handle)
    finally:
        os.close(handle)


def link_packages(ready: Path, path: Path, final: Path) -> None:
    """Give `path` the packages of another environment by a link each, and programs that run `final`'s interpreter."""
    source, target = site_packages(ready), site_packages(path)
    if source is None or target is None:
        raise FileNotFoundError(f"no site-packages in {ready} or {path}")
    for entry in sorted(source.iterdir()):
        if entry.name != "__pycache__" and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)
    for program in sorted((ready / "bin").iterdir()):
        copy = path / "bin" / program.name
        if copy.exists() or program.is_symlink():
            continue
        text = program.read_bytes()
        if re.match(rb"#!\S+/bin/python", text):
            copy.touch(mode=0o755)
            copy.write_bytes(re.sub(rb"\A#!\S+", b"#!" + bytes(final / "bin" / "python"), text))


def prune(store: Path, link: Path, keep: int) -> list[str]:
    """Remove all but the current environment, the `keep` that were current before it, and any that a process uses."""
    now = current(link)
    others = [path for path in store.iterdir() if path.is_dir() and path != now and not path.name.startswith(PARTIAL)]
    gone = []
    for old in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
        if not in_use(old):
            # renamed first: a removal that is cut off leaves a name that is cleaned, never half an environment
            doomed = old.with_name(PARTIAL + old.name)
            old.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            gone.append(old.name)
    return gone


def in_use(path: Path) -> bool:
    """Return whether a process was started from the environment or has a library of it mapped."""
    wanted = f"{path}/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (process / "cmdline").read_text(errors="replace") or wanted in (process / "maps").read_text():
                return True
    return False
