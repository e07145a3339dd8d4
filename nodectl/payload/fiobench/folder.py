"""The folder that storage is measured in: whether there is room, what its file system is, and that nothing is left."""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Tuple

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.jobs.folder import state_root
else:  # on a node the folder above is sys.path[0], and there is no nodectl
    from jobs.folder import state_root

MIB = 1 << 20
# of this host: a folder may be the same on all of them
PREFIX = ".nodectl-storage-%s-" % os.uname().nodename
LOCK = "lock"
DIRECT = getattr(os, "O_DIRECT", 0)
LEAST_BYTES = 16 * MIB
LEAST_FILES = 20000
# of the file system, what stays free; and what a measurement may take of the rest
KEEP_PART = 0.1
KEEP_BYTES = 512 * MIB
KEEP_MOST_BYTES = 100 * KEEP_BYTES
TAKE_PART = 0.5


def target(path: str) -> Path:
    """The folder asked for, or where checkpoints lie that nodectl keeps on this host."""
    return Path(path) if path else Path(state_root()) / "checkpoints"


def room(path: Path) -> int:
    """Bytes that may be written; RuntimeError where the file system is nearly full."""
    info = os.statvfs(str(path))
    free, total = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
    # a large disk need not keep a tenth of itself for the sake of a small file
    keep = max(KEEP_BYTES, min(int(KEEP_PART * total), KEEP_MOST_BYTES))
    most = int(TAKE_PART * (free - keep))
    files = info.f_files == 0 or info.f_favail > LEAST_FILES
    if most < LEAST_BYTES or not files:
        what = "%d of %d MiB are free" % (free // MIB, total // MIB) if files else "%d inodes are free" % info.f_favail
        raise RuntimeError("the file system of %s is nearly full: %s" % (path, what))
    return most


def takes_direct(folder: Path) -> bool:
    """Whether its file system lets programs go past the page cache."""
    path = folder / "direct"
    try:
        os.close(os.open(str(path), os.O_WRONLY | os.O_CREAT | DIRECT, 0o600))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return bool(DIRECT)


def mount_of(path: Path) -> Tuple[str, str]:
    """(source, type) of the file system that holds the path."""
    real = str(path.resolve())
    best: Tuple[str, str, str] = ("", "", "")
    with Path("/proc/self/mounts").open(encoding="utf-8", errors="replace") as table:
        for line in table:
            source, point, kind = (word.replace("\\040", " ") for word in line.split()[:3])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[1]):
                best = (source, point, kind)
    return best[0], best[2]


def remove_stale(parent: Path) -> None:
    """Folders of this host's measurements whose program is gone."""
    for folder in parent.glob(glob.escape(PREFIX) + "*"):
        try:
            with (folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(str(folder), ignore_errors=True)
        except OSError:  # in use, or another user's
            continue


@contextlib.contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A folder for the files, gone at the end; so is what had to be made for it."""
    made = []
    for each in [parent, *parent.parents]:
        if each.exists():
            break
        made.append(each)
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=str(parent)))
    try:
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)
        for each in made:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                each.rmdir()
