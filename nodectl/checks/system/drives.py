"""Disks that share their data: software RAID with all its members."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.raid import Array, Raid
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
