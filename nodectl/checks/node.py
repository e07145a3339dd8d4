"""Whether a host is fit for a job by itself: versions, GPUs, shared memory, disk, clock, kernel log."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import Subject, held
from nodectl.model.facts import Clock, Disk, Gpus, Memory, Unread, Versions
from nodectl.model.finding import Finding
from nodectl.model.settings import ClockSync, KernelLog
from nodectl.model.status import Status
from nodectl.profiles.nccl import version_key

_MIN_SHM_MIB = 1024  # NCCL and DataLoader workers talk through it; container engines give 64
_MIN_DISK_MIB = 1024
_CLOCK_WARNING_S, _CLOCK_FAILED_S = 1.0, 5.0  # torchrun drops a host whose clock is 15 s off


def versions(host: Subject) -> Iterator[Finding]:
    """torch and the libraries that its wheel brings, in the launcher's environment; the driver at least the lowest."""
    found = host.facts.get("versions")
    yield from host.unread("versions", found, "the stack's versions")
    if not isinstance(found, Versions) or host.wanted is None:
        return
    stack = host.wanted.stack
    remedy = "run `nodectl provision --tags pytorch`"
    pairs = [("torch", stack.torch, found.torch), ("cuda", stack.cuda, found.cuda), ("nccl", stack.nccl, found.nccl)]
    for name, wanted, actual in pairs:
        if wanted is None:
            continue
        if actual is None and name != "torch" and found.torch is not None:
            # older wheels bundle these, and their files do not name a version
            said = found.unavailable.get(name, "not told")
            yield host.finding("versions", Status.UNKNOWN, name, expected=wanted, actual=said, remedy=remedy)
            continue
        shown = actual or found.unavailable.get(name, "none")
        yield host.finding("versions", held(_same(wanted, actual)), name, expected=wanted, actual=shown, remedy=remedy)
    if stack.driver is not None:
        yield _driver(host, stack.driver.min, found)


def _same(wanted: str, actual: str | None) -> bool:
    """A build (+cu118) is compared only where the profile names one, a patch level only as far as it does."""
    if actual is None:
        return False
    plain = actual if "+" in wanted else actual.split("+")[0]
    return plain == wanted or plain.startswith(f"{wanted}.")


def _driver(host: Subject, lowest: str, found: Versions) -> Finding:
    expected = f"{lowest} or newer"
    if found.driver is None:
        reason = found.unavailable.get("driver", "none is loaded")
        remedy = "run `nodectl provision --tags nvidia_driver`"
        return host.finding("versions", Status.UNKNOWN, "driver", expected=expected, actual=reason, remedy=remedy)
    enough = version_key(found.driver) >= version_key(lowest)
    remedy = "install a newer driver, or choose a stack that this one can run: `nodectl profile validate`"
    return host.finding("versions", held(enough), "driver", expected=expected, actual=found.driver, remedy=remedy)


def gpus(host: Subject) -> Iterator[Finding]:
    """As many as the hardware profile names, none of them lost; no GPUs wanted, none looked for."""
    count = host.wanted.hardware.gpus if host.wanted else None
    found = host.facts.get("gpus")
    if not count:
        return
    remedy = "run `nvidia-smi -L` there; `dmesg` there says why one is gone"
    expected = f"{count} GPUs"
    if isinstance(found, Unread):
        actual = f"{found.kind}: {found.reason}"
        yield host.finding("gpus", Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)
    if isinstance(found, Gpus):
        lost = f"; lost: {', '.join(found.lost)}" if found.lost else ""
        right = found.count == count and not found.lost
        yield host.finding("gpus", held(right), expected=expected, actual=f"{found.count}{lost}", remedy=remedy)


def shared_memory(host: Subject) -> Iterator[Finding]:
    """Ranks of one host and their loaders talk through /dev/shm."""
    memory, expected = host.facts.get("memory"), f"{_MIN_SHM_MIB} MiB or more"
    yield from host.unread("shared_memory", memory, expected)
    if isinstance(memory, Memory):
        size = memory.shm_mib
        status = Status.UNKNOWN if size is None else Status.OK if size >= _MIN_SHM_MIB else Status.WARNING
        actual = "no file system there" if size is None else f"{size} MiB"
        remedy = "enlarge it: `mount -o remount,size=50% /dev/shm`, or --shm-size of the container"
        yield host.finding("shared_memory", status, "/dev/shm", expected=expected, actual=actual, remedy=remedy)  # noqa: S108


def disk(host: Subject) -> Iterator[Finding]:
    """Room for jobs and their logs, and on the root file system."""
    found, expected = host.facts.get("disk"), f"{_MIN_DISK_MIB} MiB free"
    yield from host.unread("disk", found, expected)
    rows = (("/", found.root_free_mib), (found.state_folder, found.state_free_mib)) if isinstance(found, Disk) else ()
    for folder, free_mib in rows:
        status = Status.OK if free_mib >= _MIN_DISK_MIB else Status.WARNING
        remedy = "make room there; `nodectl jobs clean` removes what ended jobs left"
        yield host.finding("disk", status, folder, expected=expected, actual=f"{free_mib} MiB", remedy=remedy)


def clock(host: Subject) -> Iterator[Finding]:
    """Near the operator's clock, and kept right by something; a host that shares its clock has none to keep."""
    found, sync = host.facts.get("time"), host.facts.get("clock_sync")
    if isinstance(found, Clock):
        # the true offset is within error_s above offset_s: only what is off for certain counts
        off_s = max(0.0, found.offset_s, -(found.offset_s + found.error_s))
        status = (
            Status.OK if off_s < _CLOCK_WARNING_S else Status.FAILED if off_s >= _CLOCK_FAILED_S else Status.WARNING
        )
        expected, remedy = f"within {_CLOCK_WARNING_S:g} s of ours", "synchronise its clock (chrony)"
        yield host.finding("clock", status, "offset", expected=expected, actual=f"{off_s:.1f} s off", remedy=remedy)
    expected = "synchronised"
    if host.shares("clock"):
        actual = "the clock is the machine's below this host"
        yield host.finding("clock", Status.SKIPPED, "synchronisation", expected=expected, actual=actual)
    elif isinstance(sync, ClockSync):
        status = Status.OK if sync.synchronised else Status.WARNING
        remedy = "look at `chronyc tracking` or `timedatectl` there"
        yield host.finding("clock", status, "synchronisation", expected=expected, actual=sync.told, remedy=remedy)
    else:
        yield from host.unread("clock", sync, expected)


def kernel_log(host: Subject) -> Iterator[Finding]:
    """No Xid since boot; the log of a lab host is the machine's."""
    found, expected = host.facts.get("kernel_log"), "no Xid of the driver since boot"
    if host.shares("kernel"):
        return
    yield from host.unread("kernel_log", found, expected)
    if isinstance(found, KernelLog):
        status = Status.WARNING if found.xids else Status.OK
        actual = f"{len(found.xids)}, the last: {found.xids[-1]}" if found.xids else "none"
        remedy = "look the Xid's number up in NVIDIA's list; the driver's own log names the process"
        yield host.finding("kernel_log", status, "Xid", expected=expected, actual=actual, remedy=remedy)
