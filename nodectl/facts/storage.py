"""Storage: room, mounts, software RAID, what drives say of their health."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.common import bounded_json, system_names
from nodectl.common.node_paths import STATE_FOLDER
from nodectl.errors import ParseError
from nodectl.facts.base import SUDOERS, AbsentError, Fact, UnknownError, entry, gib, output, script, shell, text_fact
from nodectl.model.recording import Command, Recording

# names may hold spaces; the numbers between them do not
_ROW = re.compile(r"(?P<device>.+?)\s+(?P<size>\d+)\s+\d+\s+(?P<free>-?\d+)\s+(?:(?P<used>\d+)%|-)\s+(?P<mount>/.*)")
_INODES = re.compile(r".*?\s(\d+)\s+(\d+)\s+(\d+)\s+(?:\d+%|-)\s+(/.*)")


@dataclass(frozen=True, slots=True)
class FileSystem:
    """One row of `df`: `free_mib` is what a normal user may still write, `used_percent` of what one may use at all."""

    device: str
    mount: str
    size_mib: int
    free_mib: int
    used_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Room on the host: the root file system, the one of nodectl's state folder, and that of /var/log.

    Percentages of inodes in use are None if the file system has no fixed number of them.
    """

    root_size_mib: int
    root_free_mib: int
    state_folder: str
    state_free_mib: int
    root_inodes_used_percent: int | None = None
    state_inodes_used_percent: int | None = None
    home_inodes_used_percent: int | None = None
    root_used_percent: int | None = None
    state_used_percent: int | None = None
    log: FileSystem | None = None


def parse_df(text: str) -> tuple[FileSystem, ...]:
    """Return the rows of `df -kP` in its order, which is that of its arguments; ParseError for a row that is none."""
    rows = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        match = _ROW.fullmatch(line)
        if match is None:
            raise ParseError(f"df line {number}: {line!r}")
        size_mib, free_mib = int(match["size"]) // 1024, int(match["free"]) // 1024
        used = int(match["used"]) if match["used"] else None
        rows.append(FileSystem(match["device"], match["mount"], size_mib, free_mib, used))
    if not rows:
        raise ParseError("df shows no file system")
    return tuple(rows)


def _read_disk(recording: Recording) -> Disk:
    folder, _, text = entry(recording, "df").stdout.partition("\n")
    head, newline, inodes = text.rpartition("\nFilesystem ")
    table = parse_df(head if newline else text)
    if len(table) not in (2, 3):
        raise ParseError(f"df shows {len(table)} file systems, not those of /, {folder} and /var/log")
    root, state, *logs = table
    used = [_inodes_used_percent(line) for line in inodes.splitlines()[1:]] if newline else []
    # a host without /home has no third
    root_used, state_used, home_used = [*used, None][:3] if len(used) in (2, 3) else (None, None, None)
    return Disk(
        *(root.size_mib, root.free_mib, folder, state.free_mib, root_used, state_used, home_used),
        root_used_percent=root.used_percent,
        state_used_percent=state.used_percent,
        log=logs[0] if logs else None,
    )


def _inodes_used_percent(line: str) -> int | None:
    """Return None for a file system that makes inodes as it needs them: it says 0 of 0."""
    match = _INODES.fullmatch(line)
    if match is None or int(match[1]) == 0:
        return None
    return round(100 * int(match[2]) / int(match[1]))


DISK_FACT = Fact(
    "disk",
    (script("df", shell("df", state=STATE_FOLDER), waits=True),),
    _read_disk,
    lambda disk: f"/ {gib(disk.root_free_mib)} free of {gib(disk.root_size_mib)}",
    row=800,
)


_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system, as a line of /proc/self/mounts."""

    target: str
    source: str
    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mounts:
    """Mounted file systems: source, type, options; the last one of a target is the one in use."""

    mounts: tuple[Mount, ...]


def _parse_mounts(text: str) -> Mounts:
    mounts = []
    for number, line in enumerate(text.splitlines(), start=1):
        columns = [_OCTAL.sub(lambda match: chr(int(match[1], 8)), word) for word in line.split(" ")]
        if len(columns) < 4:
            raise ParseError(f"mounts: line {number}: {line!r}")
        source, target, kind, options = columns[:4]
        mounts.append(Mount(target, source, kind, tuple(options.split(","))))
    return Mounts(tuple(mounts))


def _mounts_words(mounts: Mounts) -> str:
    shared = [
        f"{mount.target} ({mount.kind})" for mount in mounts.mounts if system_names.is_network(mount.kind, mount.source)
    ]
    return f"{len(mounts.mounts)} mounted" + (f", over the network: {', '.join(shared)}" if shared else "")


MOUNTS_FACT = text_fact(
    "mounts", Command("mounts", ("cat", "/proc/self/mounts")), _parse_mounts, _mounts_words, row=810
)


_RAID_COMMAND = script("mdstat", "[ -e /proc/mdstat ] || exit 3; cat /proc/mdstat", hardware=True)
_ARRAY = re.compile(r"(?P<name>md\S*) : (?P<state>active|inactive|broken)(?: \((?P<mark>[\w-]+)\))?(?P<rest>.*)")
_DISK = re.compile(r"(\S+?)\[\d+\]((?:\([A-Z]\))*)")
_UP = re.compile(r"\[(\d+)/(\d+)\]\s+\[([U_]+)\]")
_END = re.compile(r"^unused devices:.*\s*\Z", re.MULTILINE)
_BUSY = re.compile(r"(recovery|resync|reshape|check)\s*=\s*([\d.]+%|\S+)")


@dataclass(frozen=True, slots=True)
class Array:
    """One array; `wanted` and `working` disks are None for levels that have no spare copy (raid0, linear)."""

    name: str
    state: str
    disks: tuple[str, ...]
    failed: tuple[str, ...]
    wanted: int | None = None
    working: int | None = None
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class Raid:
    """Software RAID as the kernel sees it (/proc/mdstat): each array, its disks, and those that failed."""

    arrays: tuple[Array, ...]


def _parse_raid(text: str) -> Raid:
    if not text.startswith("Personalities"):
        raise ParseError(f"mdstat: {text[:80]!r} does not begin as /proc/mdstat does")
    if not _END.search(text):  # the kernel ends it so, also where it has no array
        raise ParseError("mdstat: the output is cut: no line of unused devices ends it")
    parts = re.split(r"^(?=md\S* : )", text, flags=re.MULTILINE)[1:]
    return Raid(tuple(_array(part) for part in parts))


def _array(part: str) -> Array:
    head, _, rest = part.partition("\n")
    match = _ARRAY.fullmatch(head.rstrip())
    if match is None:
        raise ParseError(f"mdstat: {head[:120]!r} is no array")
    disks = _DISK.findall(match["rest"])
    count, busy = _UP.search(rest), _BUSY.search(rest)
    return Array(
        name=match["name"],
        state=match["state"],
        disks=tuple(name for name, _ in disks),
        failed=tuple(name for name, marks in disks if "(F)" in marks),
        wanted=int(count[1]) if count else None,
        working=int(count[2]) if count else None,
        busy=f"{busy[1]} {busy[2]}" if busy else None,
    )


def _raid_words(raid: Raid) -> str:
    return ", ".join(f"{array.name} {array.working or len(array.disks)} disks" for array in raid.arrays) or "no array"


RAID_FACT = text_fact(
    "raid", _RAID_COMMAND, _parse_raid, _raid_words, absent="the kernel has no software RAID", row=815
)


# no serial number is asked for; a disk that sleeps is not woken
_SMARTCTL = ("smartctl", "-j", "-n", "standby", "-H", "-A")
_NVME = ("nvme", "smart-log", "-o", "json")
_NVMES, _DISKS = ("/dev/nvme[0-9]", "/dev/nvme[0-9][0-9]"), ("/dev/sd[a-z]", "/dev/sd[a-z][a-z]")
_DRIVES_COMMAND = Command(
    "drives",
    (
        "sh",
        "-c",
        shell("drives", drives=" ".join((*_NVMES, *_DISKS)), smartctl=" ".join(_SMARTCTL), nvme=" ".join(_NVME)),
    ),
    deadline_s=20,
    hardware=True,
    sudo=(*((*_SMARTCTL, each) for each in (*_NVMES, *_DISKS)), *((*_NVME, each) for each in _NVMES)),
)
_DRIVE = re.compile(r"^drive (/dev/\S{1,40})$", re.MULTILINE)
_DENIED = re.compile("Permission denied|Operation not permitted")
# ATA attributes of sectors that could not be read: Current_Pending_Sector, Offline_Uncorrectable
_UNREADABLE = (197, 198)


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive; None for what its kind does not tell.

    `passed` is its own verdict, `critical_warning` NVMe's bits, `used_percent` how much is used of the life that its
    maker gives it, `failed_attributes` those of ATA that are beyond their limit now, `media_errors` what was lost since
    it was made, `unreadable_sectors` what it cannot read now.
    """

    name: str
    passed: bool | None = None
    critical_warning: int | None = None
    used_percent: int | None = None
    media_errors: int | None = None
    unreadable_sectors: int | None = None
    failed_attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drives:
    """Drives and their own word on their health: NVMe's health log and SMART, by smartctl or nvme.

    `silent` did not answer, or not in a known form; drives that tell nothing are in neither.
    """

    drives: tuple[Drive, ...]
    silent: tuple[str, ...] = ()


def _read_drives(recording: Recording) -> Drives:
    text = output(recording, _DRIVES_COMMAND.key, "neither smartctl nor nvme is installed")
    _, *parts = _DRIVE.split(text)
    if not parts:
        raise AbsentError("the host has no drive of its own")
    complaint = entry(recording, _DRIVES_COMMAND.key).stderr
    if not any(report.strip() for report in parts[1::2]):
        needs_root = "sudo" in complaint
        reason = f"needs root, and sudo wants a password: {SUDOERS}" if needs_root else complaint.strip()[:200]
        raise UnknownError(f"smartctl: {reason or 'it says nothing'}")
    drives, silent = [], []
    for name, report in zip(parts[::2], parts[1::2], strict=True):
        try:
            document = bounded_json.loads(report)
            if _DENIED.search(str(document.get("smartctl", ""))):
                raise ValueError(name)
            drives.append(_drive(name, document))
        except (ValueError, AttributeError, TypeError, KeyError):
            silent.append(name)
    return Drives(tuple(drive for drive in drives if drive != Drive(drive.name)), tuple(silent))


def _drive(name: str, report: Mapping[str, Any]) -> Drive:
    log = report.get("nvme_smart_health_information_log") or (report if "critical_warning" in report else {})
    attributes = report.get("ata_smart_attributes", {}).get("table", [])
    warning = log.get("critical_warning")
    counters = (report.get("scsi_error_counter_log") or {}).values()
    uncorrected = [int(counter.get("total_uncorrected_errors", 0)) for counter in counters]
    return Drive(
        name,
        passed=report.get("smart_status", {}).get("passed"),
        # nvme -v says each bit by its name besides
        critical_warning=_whole(warning.get("value") if isinstance(warning, dict) else warning),
        used_percent=_whole(log.get("percentage_used", log.get("percent_used"))),
        media_errors=_whole(log.get("media_errors", sum(uncorrected) if uncorrected else None)),
        unreadable_sectors=sum(
            int(attribute["raw"]["value"]) for attribute in attributes if attribute.get("id") in _UNREADABLE
        )
        if attributes
        else None,
        failed_attributes=tuple(
            str(attribute["name"]) for attribute in attributes if attribute.get("when_failed") == "now"
        ),
    )


def _whole(value: object) -> int | None:
    """Return a number; nvme writes one that is large as text."""
    return None if value is None else int(str(value))


def _drives_words(drives: Drives) -> str:
    used = max((drive.used_percent for drive in drives.drives if drive.used_percent is not None), default=None)
    return f"{len(drives.drives)} drives" + ("" if used is None else f", at most {used} % of their life used")


DRIVES_FACT = Fact("drives", (_DRIVES_COMMAND,), _read_drives, _drives_words, row=817, quiet=True)
