"""Disks that share their data (software RAID with all its members), and what each says of its own health."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from nodectl.checks.check import Check, Subject, Threshold, judges_fact
from nodectl.facts.storage import Array, Drive, Drives, Raid
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 166

RAID = Check(
    "raid",
    looks_at="/proc/mdstat",
    fires="an array that does not run or has a failed disk; warning: one that runs without a disk, or is being rebuilt",
    expected="all disks of all arrays",
    remedy="`mdadm --detail /dev/mdN` there: replace the disk, then `mdadm --add`",
    action="replace",
)


@judges_fact(Raid, RAID, reads=("raid",), unread="the state of the software RAID", borrowed="sys")
def raid(host: Subject, raid: Raid) -> Iterator[Finding]:
    """Each array has its disks."""
    faults = (fault for array in raid.arrays for fault in _of(host, array))
    yield from host.all_of(RAID, faults, actual=f"{len(raid.arrays)} arrays, each with all its disks")


def _of(host: Subject, array: Array) -> Iterator[Finding]:
    if array.state != "active":
        yield host.finding(RAID, Status.FAILED, array.name, actual=array.state)
    elif array.failed:
        actual = f"{', '.join(array.failed)} failed; {array.working} of {array.wanted} work"
        yield host.finding(RAID, Status.FAILED, array.name, actual=actual)
    elif array.working is not None and array.wanted is not None and array.working < array.wanted:
        rebuilt = f", {array.busy}" if array.busy else ""
        actual = f"{array.working} of {array.wanted} disks{rebuilt}"
        action = "none" if array.busy else "replace"
        yield host.finding(RAID, Status.WARNING, array.name, actual=actual, action=action)


DRIVE_USED_PERCENT_LIMIT = Threshold("drive_used_percent", 90, "at 100 the life that its maker gives it is used up")
DRIVE_ERRORS_LIMIT = Threshold("drive_errors", 1, "between two readings; each is data that was lost")
DRIVE_ERRORS_FIRST_LIMIT = Threshold("drive_errors_first", 100, "without an earlier reading only a clear number counts")
DRIVE_HEALTH = Check(
    "drive_health",
    looks_at="smartctl or `nvme smart-log` of each drive",
    fires="it calls itself failing, or an attribute is beyond its limit; warning: worn, hot, or data was lost",
    expected="no complaint",
    remedy="`smartctl -x DRIVE` there; save what is on it and replace it",
    action="replace",
    thresholds=(DRIVE_USED_PERCENT_LIMIT, DRIVE_ERRORS_LIMIT, DRIVE_ERRORS_FIRST_LIMIT),
)
# NVM Express base specification, SMART / Health Information log, Critical Warning
_FAILED_BITS = {
    0: "its spare blocks are used up",
    2: "its reliability is degraded",
    3: "it can be read only",
    4: "its backup of volatile memory failed",
    5: "its persistent memory region is unreliable",
}
_HOT_BIT = 1


@judges_fact(Drives, DRIVE_HEALTH, reads=("drives",), unread="the drives' own health", borrowed="sys")
def drive_health(host: Subject, drives: Drives) -> Iterator[Finding]:
    """A drive's word is taken as it is; one that says nothing of its health (a virtual one) is not judged."""
    silent = (host.finding(DRIVE_HEALTH, Status.UNKNOWN, name, actual="it did not answer") for name in drives.silent)
    faults = (fault for drive in drives.drives for fault in _complaints(host, drive))
    yield from host.all_of(DRIVE_HEALTH, chain(faults, silent), actual=f"{len(drives.drives)} drives have none")


def _complaints(host: Subject, drive: Drive) -> Iterator[Finding]:
    failed, warned = list(_failed(drive)), list(_warned(host, drive))
    if failed:
        yield host.finding(DRIVE_HEALTH, Status.FAILED, drive.name, actual="; ".join([*failed, *warned]))
    elif warned:
        yield host.finding(DRIVE_HEALTH, Status.WARNING, drive.name, actual="; ".join(warned), action="none")


def _failed(drive: Drive) -> Iterator[str]:
    bits = drive.critical_warning or 0
    yield from (words for bit, words in _FAILED_BITS.items() if bits >> bit & 1)
    yield from (f"{name} is beyond its limit" for name in drive.failed_attributes)
    # NVMe calls a hot drive failing, too
    if drive.passed is False and bits != 1 << _HOT_BIT:
        yield "it calls itself failing"


def _warned(host: Subject, drive: Drive) -> Iterator[str]:
    if (drive.critical_warning or 0) >> _HOT_BIT & 1:
        yield "it is beyond its limit of temperature"
    if drive.used_percent is not None and drive.used_percent >= host.threshold(DRIVE_USED_PERCENT_LIMIT):
        yield f"{drive.used_percent} % of its life are used"
    if drive.unreadable_sectors:
        yield f"{drive.unreadable_sectors} sectors cannot be read"
    if drive.media_errors is not None:
        grown = host.growth(f"media errors of {drive.name}", drive.media_errors)
        if host.limit_reached(grown, DRIVE_ERRORS_LIMIT, DRIVE_ERRORS_FIRST_LIMIT) is not None:
            yield f"media errors: {grown.text}"
