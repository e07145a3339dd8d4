"""Faults of a host's file systems: full, out of inodes, read-only, a small /dev/shm."""

from __future__ import annotations

import os
from contextlib import suppress

from nodectl.errors import UsageError
from nodectl.lab.faults import Act, Fault, Scene

_FILLING = "var/lib/nodectl-lab-disk-full"
_SHM = "/dev/shm"  # noqa: S108 - of a lab host
_STATE = "/root/.local/state/nodectl"
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
        step_bytes, position = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize, 0
        while step_bytes >= 4096:
            try:
                os.posix_fallocate(descriptor, position, step_bytes)
                position += step_bytes
            except OSError:
                step_bytes //= 2
        os.lseek(descriptor, 0, os.SEEK_END)
        with suppress(OSError):  # the last blocks, smaller than the file system gives away at once
            while True:
                os.write(descriptor, bytes(4096))
    finally:
        os.close(descriptor)


def _shm_size(scene: Scene) -> str:
    shm = os.statvfs(scene.root / _SHM[1:])
    return str(shm.f_blocks * shm.f_frsize)


def _resize_shm(scene: Scene, size: str) -> None:
    scene.run(["mount", "-o", f"remount,size={size}", _SHM])


# a file system with 64 inodes, and a file in each
_CROWD = (
    'mkdir -p "$1"; mount -t tmpfs -o "size=2g,nr_inodes=64,mode=700" nodectl-lab-inodes "$1"; '
    'n=0; while [ $n -lt 100 ] && true >"$1/$n"; do n=$((n + 1)); done 2>/dev/null; true'
)
# as the kernel does after an error
_PROTECT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
_UNMOUNT = 'while grep -q "^[^ ]* $1 " /proc/self/mounts; do umount -l "$1" || exit; done'


def _mounted(name: str, about: str, check: str, place: str, mount: str) -> Fault:
    def run(script: str) -> Act:
        return lambda scene, _: scene.run(["sh", "-c", script, name, place])

    return Fault(name, about, (check,), happens=run(mount), heal=run(_UNMOUNT))


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
        _CROWD,
    ),
    _mounted("read-only", f"{_DATA} can be read only", "read_only", _DATA, _PROTECT),
    Fault(
        "small-shm",
        f"{_SHM} has 64 MiB",
        ("shared_memory",),
        happens=lambda scene, _: _resize_shm(scene, "64m"),
        heal=_resize_shm,
        remember=_shm_size,
    ),
)
