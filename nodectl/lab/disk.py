"""File systems of a lab: a host's bounded disk on a loop device, and what this machine has mounted."""

import errno
import fcntl
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
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
    """Return the size of a host's disk if nobody says it: bounded if this machine can give one to each, else 0."""
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
        subprocess.run(["cp", "--sparse=always", paths[0], path], check=True)
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


def loop_numbers() -> list[int]:
    """Return the loop devices that this machine has; a new one takes the lowest number that is free."""
    return sorted(int(path.name[4:]) for path in Path("/sys/block").glob("loop*"))


def remove_loops(folder: Path, kept: Collection[int]) -> None:
    """Wait until no loop device holds a file below `folder`; remove the idle ones other than `kept`."""
    deadline = time.monotonic() + _DETACH_S
    while _holding(folder) and time.monotonic() < deadline:
        time.sleep(_RETRY_S)
    if not Path("/dev/loop-control").exists():
        return
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for number in set(loop_numbers()).difference(kept):
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
            if not Path(device).exists():
                os.mknod(device, 0o60660, os.makedev(7, number))
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


_DISK_TYPES = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "squashfs", "bcachefs"}
_SHOWN = re.compile("/(usr|var|nix|gnu)(/.*)?")
_NO_UPPER = {"overlay", "nfs", "nfs4", "9p", "virtiofs", "fuse", "fuseblk", "vfat", "exfat"}


def mounts(pid: str = "self") -> Iterator[tuple[str, str, str]]:
    """(mount point, type, options of the file system), as the process `pid` sees them, in the order of mounting."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        fstype, _, options = right.split(" ", 2)
        yield _plain(left.split(" ")[4]), fstype, _plain(options)


def mounts_below(folder: Path) -> list[str]:
    """Mount points at or below `folder`, the last mounted first."""
    return [place for place, _, _ in mounts() if Path(place).is_relative_to(folder)][::-1]


def extra_mounts() -> list[str]:
    """File systems mounted below `/` that hold programs: an overlay of `/` alone would show empty folders there."""
    return [
        place
        for place, fstype, _ in mounts()
        if fstype in _DISK_TYPES and _SHOWN.fullmatch(place) and Path(place).is_dir()
    ]


def store_needs_tmpfs(folder: Path) -> bool:
    """Return whether the file system of `folder` cannot hold what overlays write."""
    best, best_type = "", ""
    for place, fstype, _ in mounts():
        if folder.is_relative_to(place) and len(place) >= len(best):
            best, best_type = place, fstype
    return best_type.split(".")[0] in _NO_UPPER


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose root is an overlay that writes below `folder`: hosts, and whoever entered them."""
    marker = f"upperdir={folder}/"
    pids, judged = [], dict[str, bool]()
    for entry in Path("/proc").glob("[1-9]*"):
        try:
            namespace = str((entry / "ns/mnt").readlink())
            if namespace not in judged:
                judged[namespace] = any(marker in options for _, _, options in mounts(entry.name))
        except OSError:  # it has ended meanwhile, or is a kernel thread
            continue
        if judged[namespace]:
            pids.append(int(entry.name))
    return pids


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
