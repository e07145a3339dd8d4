"""What this machine has mounted: what hosts need beside `/`, what a lab has left, where overlays work."""

import re
from collections.abc import Iterator
from pathlib import Path

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
    """The file system of `folder` cannot hold what overlays write."""
    best, best_type = "", ""
    for place, fstype, _ in mounts():
        if folder.is_relative_to(place) and len(place) >= len(best):
            best, best_type = place, fstype
    return best_type.split(".")[0] in _NO_UPPER


def processes_of(folder: Path) -> list[int]:
    """Processes whose root is an overlay that writes below `folder`: hosts, whoever entered them, known or not."""
    marker = f"upperdir={folder}/"
    found, judged = [], dict[str, bool]()
    for entry in Path("/proc").glob("[1-9]*"):
        try:
            namespace = str((entry / "ns/mnt").readlink())
            if namespace not in judged:
                judged[namespace] = any(marker in options for _, _, options in mounts(entry.name))
        except OSError:  # it has ended meanwhile, or is a kernel thread
            continue
        if judged[namespace]:
            found.append(int(entry.name))
    return found


def _plain(text: str) -> str:
    """mountinfo writes blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
