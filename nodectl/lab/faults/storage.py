"""Faults of a host's file systems: full, out of inodes, read-only, a small /dev/shm."""

from __future__ import annotations

import os
from contextlib import suppress

from nodectl.errors import UsageError
from nodectl.lab.faults import Act, Fault, Scene

_FILLING = "var/lib/nodectl-lab-disk-full"
_SHM = "/dev/shm"  # noqa: S108 - of a lab host
_STATE = "/root/.local/state/nodectl"
_CHECKPOINTS = f"{_STATE}/checkpoints"
_DATA = "/opt"


def _fill(scene: Scene, _: str) -> None:
    """Claim every free block: blocks that are promised but not written cost the machine nothing."""
    if not scene.state.spec.disk_bytes:
        raise UsageError(
            f"{scene.host.name} has no disk of its own to fill: the machine's would be filled",
            "bring the lab up with a bounded disk, for example `nodectl lab up --disk 4G`",
        )
    path = scene.root / _FILLING
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        _claim(descriptor, os.statvfs(path).f_bavail * os.statvfs(path).f_frsize)
        with suppress(OSError):  # the last blocks, smaller than the file system gives away at once
            while True:
                os.write(descriptor, bytes(4096))
    finally:
        os.close(descriptor)


def _claim(descriptor: int, size_bytes: int) -> None:
    step_bytes, position = size_bytes, 0
    while step_bytes >= 4096:
        try:
            os.posix_fallocate(descriptor, position, step_bytes)
            position += step_bytes
        except OSError:
            step_bytes //= 2
    os.lseek(descriptor, 0, os.SEEK_END)


def _shm_size(scene: Scene) -> str:
    """Its size in bytes, as mount takes it."""
    shm = os.statvfs(scene.root / _SHM[1:])
    return str(shm.f_blocks * shm.f_frsize)


def _resize_shm(scene: Scene, size: str) -> None:
    scene.run(["mount", "-o", f"remount,size={size}", _SHM])


def _crowd(scene: Scene, place: str, mode: int = 700) -> None:
    """Mount a file system with 64 inodes, and put a file into each."""
    script = (
        'mkdir -p "$1"; mount -t tmpfs -o "size=2g,nr_inodes=64,mode=$2" nodectl-lab-inodes "$1"; '
        'n=0; while [ $n -lt 100 ] && true >"$1/$n"; do n=$((n + 1)); done 2>/dev/null; true'
    )
    scene.run(["sh", "-c", script, "crowd", place, str(mode)])


def _protect(scene: Scene, _: str) -> None:
    """Make a file system of the host read-only, as the kernel does after an error."""
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    scene.run(["sh", "-c", script, "protect", _DATA])


def _put_read_only(scene: Scene, place: str) -> None:
    script = 'mkdir -p "$1" && mount -t tmpfs -o ro,size=1m,mode=700 nodectl-lab-state "$1"'
    scene.run(["sh", "-c", script, "protect", place])


def _unmount_checkpoints(scene: Scene, had: str) -> None:
    """And the folder goes where there was none."""
    _unmount(scene, _CHECKPOINTS)
    if not had:
        scene.run(["sh", "-c", 'rmdir -p --ignore-fail-on-non-empty "$1" 2>/dev/null; true', "leave", _CHECKPOINTS])


def _unmount(scene: Scene, place: str) -> None:
    """Unmount a place as often as something is mounted there."""
    script = 'while grep -q "^[^ ]* $1 " /proc/self/mounts; do umount -l "$1" || exit; done'
    scene.run(["sh", "-c", script, "unmount", place])


def _mounted(name: str, about: str, check: str, place: str, mount: Act) -> Fault:
    """Return a fault that mounts something over `place`, found by `check`; healed by unmounting it."""
    return Fault(name, about, (check,), happens=mount, heal=lambda scene, _: _unmount(scene, place))


FAULTS = (
    Fault(
        "disk-full",
        "the root file system has no block left",
        ("disk",),
        happens=_fill,
        heal=lambda scene, _: (scene.root / _FILLING).unlink(missing_ok=True),
    ),
    _mounted(
        "inodes-full",
        "the file system of nodectl's state has no inode left",
        "inodes",
        _STATE,
        lambda scene, _: _crowd(scene, _STATE),
    ),
    _mounted(
        "home-inodes-full", "/home has no inode left", "inodes", "/home", lambda scene, _: _crowd(scene, "/home", 755)
    ),
    _mounted("read-only", f"{_DATA} can be read only", "read_only", _DATA, _protect),
    _mounted(
        "state-read-only",
        "nodectl's state lies on a file system that can be read only",
        "read_only",
        _STATE,
        lambda scene, _: _put_read_only(scene, _STATE),
    ),
    Fault(
        "checkpoints-read-only",
        "the folder of checkpoints is a file system that can be read only",
        ("read_only",),
        happens=lambda scene, _: _put_read_only(scene, _CHECKPOINTS),
        heal=_unmount_checkpoints,
        remember=lambda scene: "+" if (scene.root / _CHECKPOINTS[1:]).is_dir() else "",
    ),
    Fault(
        "small-shm",
        f"{_SHM} has 64 MiB",
        ("shared_memory",),
        happens=lambda scene, _: _resize_shm(scene, "64m"),
        heal=_resize_shm,
        remember=_shm_size,
    ),
)
