"""Whether processors, memory and disks are all there and well, and what the BMC logged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain

from nodectl.checks.check import Check, Subject, Threshold, Told, failed_unless, judges_fact, judges_value
from nodectl.facts.board import BmcEvent, BmcLog
from nodectl.facts.processors import Cpu, Memory, Numa, cpu_set
from nodectl.facts.storage import Array, Drive, Drives, Raid
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 160


_REPLUG = "look at the firmware's log (`ipmitool sel list`): a processor or module may have been taken out of service"
_BIOS = "compare the firmware's settings (SMT, NPS, sub-NUMA clusters) with a node that is right"
_UNEVEN = 0.75  # the smallest NUMA node's memory against the largest's
_GIB_MIB = 1024


CPU_MODEL = Check(
    "cpu_model",
    fires="another processor than the hardware profile's",
    remedy="look whether the board was exchanged (`dmidecode -t system`); if the node is meant so, choose its own "
    "hardware profile",
)
CPU_SOCKETS = Check("cpu_sockets", fires="not as many sockets as the profile has")
CPU_CORES = Check("cpu_cores", fires="not as many cores")
CPU_THREADS = Check("cpu_threads", fires="not as many threads: SMT switched, or processors lost")
CPU_OFFLINE = Check(
    "cpu_offline",
    fires="warning: processors that the kernel knows are offline",
    expected="every processor online",
    remedy="`chcpu -e LIST` there, and look why they were taken offline (`dmesg`, machine checks)",
)


@judges_fact(
    Cpu,
    *(CPU_MODEL, CPU_SOCKETS, CPU_CORES, CPU_THREADS),
    reads=("cpu",),
    unread="the processors",
    borrowed="cpu",
    where=lambda host: bool(host.wanted and host.wanted.hardware.cpu),
)
def processors(host: Subject, cpu: Cpu) -> Iterator[Finding]:
    """Model, sockets, cores and threads as the hardware profile has them."""
    wanted = host.wanted.hardware.cpu if host.wanted else None
    if wanted is None:
        return
    same = cpu.model is not None and wanted.model.lower() in cpu.model.lower()
    status = Status.UNKNOWN if cpu.model is None else failed_unless(same)
    yield host.finding(CPU_MODEL, status, expected=wanted.model, actual=cpu.model or "not named")
    counts = (
        (CPU_SOCKETS, "sockets", wanted.sockets, cpu.sockets, _REPLUG),
        (CPU_CORES, "cores", wanted.cores, cpu.cores, _REPLUG),
        (CPU_THREADS, "threads", wanted.threads, cpu.threads, _BIOS),
    )
    for check, noun, number, live, remedy in counts:
        status = Status.UNKNOWN if live is None else failed_unless(live == number)
        actual = "not told by lscpu" if live is None else str(live)
        yield host.finding(check, status, expected=f"{number} {noun}", actual=actual, remedy=remedy)


@judges_value(Cpu, CPU_OFFLINE, reads=("cpu",), unread="the processors", borrowed="cpu")
def offline(_: Subject, cpu: Cpu) -> Told:
    """Compare the threads that the kernel knows of (all that lscpu counts) with those online."""
    if cpu.online is None:
        return Told(None, remedy="look at /sys/devices/system/cpu/online there")
    online = len(cpu_set(cpu.online))
    return Told(online >= cpu.threads, f"{online} of {cpu.threads} ({cpu.online})")


MEMORY_BALANCE = Check(
    "memory_balance",
    fires="warning: a NUMA node has less than three quarters of another's memory",
    expected="each NUMA node as much memory as the others",
    remedy=f"a module is missing or off on one node: {_REPLUG}",
)


@judges_value(Numa, MEMORY_BALANCE, reads=("numa",), unread="the NUMA nodes", borrowed="sys")
def numa(_: Subject, numa: Numa) -> Told | None:
    """Require about as much memory on each NUMA node as on the others."""
    # a node without processors is a GPU's memory (GH200), or memory at the end of a link (CXL)
    nodes = [node for node in numa.nodes if node.cpus] or list(numa.nodes)
    sizes_mib = {node.node: node.memory_mib for node in nodes if node.memory_mib is not None}
    if len(sizes_mib) < len(nodes) or not nodes:
        return Told(None) if nodes else None
    actual = ", ".join(f"node {node}: {size // _GIB_MIB} GiB" for node, size in sizes_mib.items())
    return Told(min(sizes_mib.values()) >= _UNEVEN * max(sizes_mib.values()), actual)


MEMORY_PERCENT_LIMIT = Threshold(
    "memory_percent", 90, "what the firmware and the kernel keep is less than a tenth of what is installed"
)
MEMORY_SIZE = Check(
    "memory_size",
    fires="less than the profile's, beyond what firmware keeps",
    remedy=_REPLUG,
    thresholds=(MEMORY_PERCENT_LIMIT,),
)


@judges_value(
    Memory,
    MEMORY_SIZE,
    reads=("memory",),
    unread="the memory",
    borrowed="memory",
    where=lambda host: bool(host.wanted and host.wanted.hardware.memory_gb),
    otherwise=Status.FAILED,
)
def memory(host: Subject, memory: Memory) -> Told:
    """Require as much memory as the profile names, less what firmware and kernel keep."""
    wanted_gb = (host.wanted.hardware.memory_gb if host.wanted else 0) or 0
    percent = host.threshold(MEMORY_PERCENT_LIMIT)
    enough = memory.total_mib >= wanted_gb * 1e9 / 2**20 * percent / 100
    expected = f"{wanted_gb} GB installed, {percent:g} % of it usable or more"
    return Told(enough, f"{memory.total_mib * 2**20 / 1e9:.0f} GB", expected)


MEMORY_AVAILABLE_PERCENT_LIMIT = Threshold(
    "memory_available_percent",
    10,
    "earlyoom's own limit: below it, allocations stall and the kernel soon ends processes",
)
MEMORY_AVAILABLE = Check(
    "memory_available",
    fires="warning: less available than the threshold, apart from huge pages",
    remedy="find what fills the memory (`ps aux --sort -rss | head`, `df -h /dev/shm` there); end what no job needs",
    thresholds=(MEMORY_AVAILABLE_PERCENT_LIMIT,),
)


@judges_value(Memory, MEMORY_AVAILABLE, reads=("memory",), unread="the memory", borrowed="memory")
def available(host: Subject, memory: Memory) -> Told:
    """Ranks and their loaders find memory."""
    least = host.threshold(MEMORY_AVAILABLE_PERCENT_LIMIT)
    usable_mib = memory.total_mib - (memory.huge_pages_mib or 0)
    expected = f"{least:g} % of the memory available or more"
    if memory.available_mib is None or usable_mib <= 0:
        return Told(None, expected=expected)
    percent = 100 * memory.available_mib / usable_mib
    enough = percent >= least
    return Told(
        enough, expected if enough else f"{percent:.0f} %: {memory.available_mib} MiB of {usable_mib}", expected
    )


# Disks that share their data (software RAID with all its members), and what each says of its own health.

RAID = Check(
    "raid",
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
    """Take each drive's word as it is; one that says nothing of its health (a virtual one) is not judged."""
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
    yield from (failure for bit, failure in _FAILED_BITS.items() if bits >> bit & 1)
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


# What the board's management controller has logged of failed parts within the last days.

_DAY_S = 86400
BMC_DAYS_LIMIT = Threshold("bmc_days", 7, "what is older was seen before, or repaired: nobody empties the log")
BMC_LOG = Check(
    "bmc_log",
    fires="a part that failed within the threshold's days; warning: one that is about to, or came near its limit",
    expected="no event of a failed part",
    remedy="`ipmitool sel elist` there names the part; after the repair `ipmitool sel clear`",
    action="drain",
    thresholds=(BMC_DAYS_LIMIT,),
)
# the words of ipmitool for IPMI's sensor events (IPMI 2.0, tables 42-2 and 42-3)
_FAILED = re.compile(
    r"Uncorrectable ECC|Uncorrectable error|Uncorrectable machine check|Bus Fatal|PCI [PS]ERR|IERR|CATERR"
    r"|Thermal Trip|Failure detected|Non-recoverable|Drive Fault|Memory Device Disabled|Critical Interrupt"
    r"|Power Supply AC lost|Bus Uncorrectable|FRB[123]|Redundancy Lost|Config(?:uration)? Error|Upper Critical"
    r"|Lower Critical|Processor disabled|In Failed Array",
    re.IGNORECASE,
)
_NEAR = re.compile(
    r"Predictive Failure|Correctable ECC logging limit|logging limit reached|Non-critical|Degraded|Throttled"
    r"|Bus Correctable|Redundancy Degraded",
    re.IGNORECASE,
)


@judges_fact(BmcLog, BMC_LOG, reads=("bmc_log",), unread="the BMC's event log", borrowed="sys")
def bmc_log(host: Subject, log: BmcLog) -> Iterator[Finding]:
    """Judge the newest event of each sensor: a part failed, and no later event took it back."""
    days = host.threshold(BMC_DAYS_LIMIT)
    newest = {(event.sensor, event.event): event for event in log.events}
    standing = [event for event in newest.values() if event.asserted and _recent(event, host.time, days)]
    actual = f"none in {days:g} days, {len(log.events)} events in all"
    yield from host.all_of(BMC_LOG, _findings(host, standing), actual=actual)


def _findings(host: Subject, events: list[BmcEvent]) -> Iterator[Finding]:
    for event in events:
        text = f"{event.sensor}: {event.event}"
        failed = _FAILED.search(text) and not _NEAR.search(text)
        if failed or _NEAR.search(text):
            status, action = (Status.FAILED, "drain") if failed else (Status.WARNING, "none")
            when = f" on {event.date} at {event.time}" if event.date else ""
            yield host.finding(BMC_LOG, status, event.sensor, actual=f"{event.event}{when}", action=action)


def _recent(event: BmcEvent, now: float, days: float) -> bool:
    """Return whether the event is recent; one from before the controller had a clock may be of this start."""
    if not event.date:
        return True
    form = "%m/%d/%Y" if len(event.date) == 10 else "%m/%d/%y"
    try:
        at = datetime.strptime(event.date, form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return True
    return now - at <= (days + 1) * _DAY_S
