"""A host's bounded disk: a sparse ext4 image on a loop device that detaches itself when the host's mounts are gone."""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nodectl.errors import LabError
from nodectl.lab.syscalls import MS_NODEV, mount

_LOOP_CONFIGURE, _LOOP_CTL_REMOVE, _LOOP_CTL_GET_FREE = 0x4C0A, 0x4C81, 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_DETACH_S, _RETRY_S = 5.0, 0.005
_DEFAULT_BYTES, _DEFAULT_HOSTS = 8 * 2**30, 64
# struct loop_config: fd, block size, struct loop_info64 (flags at byte 52 of its 232), 8 reserved words
_LOOP_CONFIG = struct.Struct("=II52xI176x64x")


def default_disk_bytes(folder: Path, hosts: int) -> int:
    """What a host gets where nobody says: a bounded disk where this machine can give one to each, else 0 (none)."""
    free_bytes = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    able = Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None
    return _DEFAULT_BYTES if able and hosts <= _DEFAULT_HOSTS and free_bytes >= _DEFAULT_BYTES else 0


def make_images(folder: Path, names: Sequence[str], size_bytes: int) -> list[Path]:
    """One image a name in `folder/<name>/disk.img`; made once and copied, holes and all."""
    free_bytes = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    if size_bytes > free_bytes:
        raise LabError(f"{folder} has {free_bytes / 2**30:.1f}G left, a disk was to have {size_bytes / 2**30:g}G")
    paths = [folder / name / "disk.img" for name in names]
    with paths[0].open("wb") as stream:
        stream.truncate(size_bytes)
    # no journal: a host's power cut is an experiment, not a loss
    options = ["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"]
    made = subprocess.run(["mkfs.ext4", *options, paths[0]], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise LabError(f"mkfs.ext4 failed: {made.stderr.strip()}")
    for path in paths[1:]:
        _copy_sparse(paths[0], path, size_bytes)
    return paths


def mount_image(image: Path, target: Path) -> None:
    """Mount `image` on `target` in this mount namespace."""
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    loop = -1
    try:
        loop, device = _attach(backing)
        mount(device, str(target), "ext4", MS_NODEV, "discard")
    finally:
        os.close(backing)
        if loop >= 0:
            os.close(loop)


def loop_count() -> int:
    """How many loop devices this machine has: one more than the highest number."""
    return max((int(path.name[4:]) + 1 for path in Path("/sys/block").glob("loop*")), default=0)


def remove_loops(folder: Path, first: int) -> None:
    """Wait until no loop device holds a file below `folder`; remove the idle ones from number `first` on."""
    deadline = time.monotonic() + _DETACH_S
    while _holding(folder) and time.monotonic() < deadline:
        time.sleep(_RETRY_S)
    if not Path("/dev/loop-control").exists():
        return
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for number in range(first, loop_count()):
            with suppress(OSError):  # somebody else's, in use
                fcntl.ioctl(control, _LOOP_CTL_REMOVE, number)
    finally:
        os.close(control)


def _holding(folder: Path) -> bool:
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if path.read_text().startswith(f"{folder}/"):
                return True
    return False


def _attach(backing: int) -> tuple[int, str]:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device = f"/dev/loop{number}"
            _make_node(device, number)
            try:
                loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENXIO):  # another lab's end has just removed it
                    continue
                raise
            try:
                fcntl.ioctl(loop, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(backing, 0, _LO_FLAGS_AUTOCLEAR))
                return loop, device
            except OSError as error:
                os.close(loop)
                if error.errno != errno.EBUSY:  # another host was faster
                    raise
    finally:
        os.close(control)


def _make_node(device: str, number: int) -> None:
    if not Path(device).exists():
        os.mknod(device, 0o60660, os.makedev(7, number))


def _copy_sparse(source: Path, target: Path, size_bytes: int) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        new.truncate(size_bytes)
        position = 0
        while True:
            try:
                position = os.lseek(old.fileno(), position, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return
            end = os.lseek(old.fileno(), position, os.SEEK_HOLE)
            os.pwrite(new.fileno(), os.pread(old.fileno(), end - position, position), position)
            position = end
