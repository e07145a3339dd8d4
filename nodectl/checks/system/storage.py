"""Room and mounts: /dev/shm, disks and their inodes, what may be written, and what the site says must be mounted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, judges_fact, warning_unless
from nodectl.common import system_names
from nodectl.facts.processors import Memory
from nodectl.facts.storage import Disk, Mount, Mounts
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 150

_SHM = "/dev/shm"  # noqa: S108 - read, never written
_DISKS = system_names.LOCAL | system_names.NETWORK
# without these nothing works; elsewhere a disk may be read-only because somebody wants it so
_WRITTEN = ("/", "/var", "/var/log", "/var/tmp", "/home", "/root", "/tmp", "/opt", "/local", "/scratch")  # noqa: S108


SHM_MIB_LIMIT = Threshold("shm_mib", 1024, "NCCL and loaders talk through it; container engines give 64")
SHARED_MEMORY = Check(
    "shared_memory",
    fires="warning: smaller than the threshold; unknown: none there",
    remedy="enlarge it: `mount -o remount,size=50% /dev/shm`, or --shm-size of the container",
    thresholds=(SHM_MIB_LIMIT,),
)
SHM_FREE = Check(
    "shm_free",
    fires="warning: nearly full",
    remedy="remove what ended jobs left there: /dev/shm/nccl-*, torch_*, sem.* that no process holds",
    thresholds=(SHM_MIB_LIMIT,),
)


@judges(SHARED_MEMORY, SHM_FREE, reads=("memory",))
def shared_memory(host: Subject) -> Iterator[Finding]:
    """Ranks of one host and their loaders talk through /dev/shm."""
    memory, least = host.facts.get("memory"), host.threshold(SHM_MIB_LIMIT)
    expected = f"{least:g} MiB or more"
    for check in (SHARED_MEMORY, SHM_FREE):
        yield from host.unread(check, memory, expected)
    if isinstance(memory, Memory):
        size = memory.shm_mib
        status = Status.UNKNOWN if size is None else warning_unless(size >= least)
        actual = "no file system there" if size is None else f"{size} MiB"
        yield host.finding(SHARED_MEMORY, status, _SHM, expected=expected, actual=actual)
        if memory.shm_free_mib is not None and size is not None and size >= least:
            enough = memory.shm_free_mib >= least / 2
            actual = f"{memory.shm_free_mib} MiB free of {size}"
            expected = f"{least / 2:g} MiB free"
            yield host.finding(SHM_FREE, warning_unless(enough), _SHM, expected=expected, actual=actual)


DISK_FREE_MIB_LIMIT = Threshold("disk_free_mib", 1024, "room for logs and job folders")
DISK_USED_PERCENT_LIMIT = Threshold(
    "disk_used_percent", 95, "beyond it ext4 and XFS write slowly, in pieces; it is where monitors page"
)
INODES_USED_PERCENT_LIMIT = Threshold("inodes_used_percent", 90, "a job folder and its cache are thousands of files")
DISK = Check(
    "disk",
    fires="warning: less room than the threshold, or more of it in use",
    remedy="make room there; `nodectl jobs clean` removes what ended jobs left, `journalctl --vacuum-size` old logs",
    thresholds=(DISK_FREE_MIB_LIMIT, DISK_USED_PERCENT_LIMIT),
)
INODES = Check(
    "inodes",
    fires="warning: nearly no inodes left",
    remedy="remove small files there: `du --inodes -x -d 2 DIR | sort -n` finds them",
    thresholds=(INODES_USED_PERCENT_LIMIT,),
)


@judges(DISK, INODES, reads=("disk",))
def disk(host: Subject) -> Iterator[Finding]:
    """Room for jobs and their logs, and on the root file system."""
    disk, least = host.facts.get("disk"), host.threshold(DISK_FREE_MIB_LIMIT)
    fullest = host.threshold(DISK_USED_PERCENT_LIMIT)
    expected = f"{least:g} MiB free, and {fullest:g} % or less in use"
    for check in (DISK, INODES):
        yield from host.unread(check, disk, expected)
    if not isinstance(disk, Disk):
        return
    rooms = [
        ("/", disk.root_free_mib, disk.root_used_percent),
        (disk.state_folder, disk.state_free_mib, disk.state_used_percent),
    ]
    # where it is no file system of its own, / says it
    if disk.log and disk.log.mount != "/":
        rooms.append(("/var/log", disk.log.free_mib, disk.log.used_percent))
    for folder, free_mib, used in rooms:
        status = warning_unless(free_mib >= least and (used is None or used <= fullest))
        actual = f"{free_mib} MiB free" + (f", {used} % in use" if used is not None else "")
        yield host.finding(DISK, status, folder, expected=expected, actual=actual)
    most = host.threshold(INODES_USED_PERCENT_LIMIT)
    # None: the file system has as many as it has room
    yield _inodes(host, "/", disk.root_inodes_used_percent, most)
    yield _inodes(host, disk.state_folder, disk.state_inodes_used_percent, most)
    if disk.home_inodes_used_percent is not None:
        yield _inodes(host, "/home", disk.home_inodes_used_percent, most)


def _inodes(host: Subject, folder: str, used_percent: int | None, most: float) -> Finding:
    status = warning_unless(used_percent is None or used_percent <= most)
    actual = "no fixed number" if used_percent is None else f"{used_percent} %"
    return host.finding(INODES, status, folder, expected=f"{most:g} % or less in use", actual=actual)


READ_ONLY = Check(
    "read_only",
    fires="read-only: the kernel gave the disk up",
    expected="writable",
    remedy="`dmesg` there says why the kernel gave it up: unmount it, run fsck on that disk, mount it again; if "
    "its own errors stand there (`smartctl -a`), have that disk replaced",
    action="drain",
)
_OF_THE_MACHINE = (
    "`dmesg` there says why the kernel gave it up; reboot, so that it is checked (fsck) before it is mounted"
)
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - read, never written
TEMPORARY = Check(
    "noexec",
    fires="warning: mounted noexec, so that no library that is built there can be loaded",
    expected="programs and libraries may be run there: torch.compile, Triton and extensions build them in TMPDIR",
    remedy="mount it without noexec (/etc/fstab, tmp.mount), or set TMPDIR for jobs to a folder that allows it",
)


@judges_fact(Mounts, TEMPORARY, reads=("mounts",), unread="the mounted file systems")
def temporary(host: Subject, mounts: Mounts) -> Iterator[Finding]:
    """Require that what a job compiles can be loaded from where it is put."""
    live = {mount.target: mount for mount in mounts.mounts}
    barred = (
        host.finding(TEMPORARY, Status.WARNING, target, actual=f"noexec ({live[target].kind})")
        for target in _TEMPORARY
        if target in live and "noexec" in live[target].options
    )
    yield from host.all_of(TEMPORARY, barred, actual="no temporary folder is noexec")


MOUNT = Check("mount", fires="not mounted", expected="mounted")


def _wanted(host: Subject) -> list[str]:
    return [str(target) for target in host.variables.get("mounts") or ()]


@judges_fact(Mounts, READ_ONLY, reads=("mounts", "disk"), unread="the mounted file systems")
def read_only(host: Subject, mounts: Mounts) -> Iterator[Finding]:
    """No disk fell to read-only."""
    live = {mount.target: mount for mount in mounts.mounts}
    fallen = (_fallen(host, mount) for mount in live.values() if _fell(mount, _wanted(host)))
    yield from host.all_of(
        READ_ONLY, chain(fallen, _state(host, live)), expected="every disk is writable", actual="every disk is writable"
    )


@judges_fact(
    Mounts,
    MOUNT,
    reads=("mounts",),
    unread="the mounted file systems",
    promised=True,
    where=lambda host: bool(_wanted(host)),
)
def mounted(host: Subject, mounts: Mounts) -> Iterator[Finding]:
    """All that the site expects is mounted."""
    live = {mount.target: mount for mount in mounts.mounts}
    for target in _wanted(host):
        there = live.get(target.rstrip("/") or "/")
        actual = f"{there.source}, {there.kind}" if there else "not mounted"
        remedy = f"`mount {target}` there; see /etc/fstab and whether the server answers"
        yield host.finding(MOUNT, failed_unless(there is not None), target, actual=actual, remedy=remedy)


def _fallen(host: Subject, mount: Mount) -> Finding:
    """Return the finding of a read-only mount: `/` cannot be unmounted, and a server's is no disk of this machine."""
    remedy, action = "", ""
    if mount.target == "/":
        remedy, action = _OF_THE_MACHINE, "reboot"
    elif system_names.is_network(mount.kind, mount.source):
        remedy, action = f"`mount -o remount,rw {mount.target}`; else its server exports it read-only", "none"
    actual = f"read-only ({mount.source}, {mount.kind})"
    return host.finding(READ_ONLY, Status.FAILED, mount.target, actual=actual, remedy=remedy, action=action)


def _state(host: Subject, live: Mapping[str, Mount]) -> Iterator[Finding]:
    """Jobs and probes write to the state folder and below it, whatever kind of file system somebody mounted there."""
    disk = host.fact("disk", Disk)
    if disk is None:
        return
    folders = [PurePosixPath(disk.state_folder), *PurePosixPath(disk.state_folder).parents]
    above = next((mount for folder in folders if (mount := live.get(str(folder)))), None)
    # checkpoints and jobs may lie on file systems of their own
    below = [mount for target, mount in live.items() if target.startswith(f"{disk.state_folder}/")]
    places = [(disk.state_folder, above)] if above else []
    for folder, mount in (*places, *((mount.target, mount) for mount in below)):
        if "ro" in mount.options and not _fell(mount, _wanted(host)):
            actual = f"read-only ({mount.source}, {mount.kind} at {mount.target})"
            remedy = f"mount {mount.target} writable there, or set XDG_STATE_HOME for its logins"
            yield host.finding(READ_ONLY, Status.FAILED, folder, actual=actual, remedy=remedy, action="none")


def _fell(mount: Mount, wanted: Sequence[str]) -> bool:
    return "ro" in mount.options and mount.kind in _DISKS and mount.target in (*_WRITTEN, *wanted)
