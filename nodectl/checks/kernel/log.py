"""What the kernel's log tells of this boot beside the GPUs: memory that ran out or failed, crashes, links that flap."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges
from nodectl.checks.network.nics import LINK_FLAPS_LIMIT
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg, KernelEvent

ORDER = 180

_OF_TRAINING = re.compile(r"libnccl|libcuda|libtorch|libc10|libibverbs|libmlx5|python|torchrun|\bpt_")
_SHOWN = 120


OOM = Check("oom", looks_at="dmesg", fires="warning: the kernel killed a process for memory")
MACHINE_CHECK = Check(
    "machine_check", looks_at="dmesg", fires="warning: a machine check; failed: memory in use was lost"
)
SEGFAULT = Check("segfault", looks_at="dmesg", fires="warning: a training program or NVIDIA's library crashed")
LINK_LOG = Check(
    "link_log", looks_at="dmesg", fires="warning: a link went down several times", thresholds=(LINK_FLAPS_LIMIT,)
)


@judges(OOM, MACHINE_CHECK, SEGFAULT, LINK_LOG, reads=("lab", "kernel_events"))
def log(host: Subject) -> Iterator[Finding]:
    """The log is the machine's on a lab host that is not dressed in a recording."""
    if host.borrows("kernel"):
        return
    found = host.facts.get("kernel_events")
    for check in (OOM, MACHINE_CHECK, SEGFAULT, LINK_LOG):
        yield from host.unread(check, found, "the kernel's log of this boot")
    if not isinstance(found, Dmesg):
        return
    yield from host.all_of(OOM, _oom(host, found), expected="no process killed", actual="none in the log")
    yield from host.all_of(MACHINE_CHECK, _machine_checks(host, found), expected="none", actual="none in the log")
    yield from host.all_of(SEGFAULT, _crashes(host, found), expected="none of training", actual="none in the log")
    yield from host.all_of(LINK_LOG, _links(host, found), expected="links that stay", actual="no flap in the log")


def _oom(host: Subject, found: Dmesg) -> Iterator[Finding]:
    events = [each for each in found.events if each.kind == "oom"]
    if events:
        who = Counter(each.process or "?" for each in events)
        names = ", ".join(f"{name} ({number})" for name, number in who.most_common(4))
        remedy = "fewer loader workers or a smaller batch; the log names who held the memory"
        actual = f"{len(events)} killed since boot: {names}"
        yield host.finding(
            OOM,
            Status.WARNING,
            expected="no process killed",
            actual=actual,
            remedy=remedy,
            action="restart job",
            evidence=_last(events),
        )


def _machine_checks(host: Subject, found: Dmesg) -> Iterator[Finding]:
    events = [each for each in found.events if each.kind == "mce"]
    fatal = [each for each in events if each.pid is not None or "corruption" in each.text.lower()]
    if events:
        remedy = "drain the node; `ras-mc-ctl --errors` or `ipmitool sel list` names the part"
        yield host.finding(
            MACHINE_CHECK,
            Status.FAILED if fatal else Status.WARNING,
            expected="none",
            actual=f"{len(events)} since boot" + (f", {len(fatal)} of them lost memory in use" if fatal else ""),
            remedy=remedy,
            action="drain",
            evidence=_last(fatal or events),
        )


def _crashes(host: Subject, found: Dmesg) -> Iterator[Finding]:
    events = [each for each in found.events if each.kind == "segfault" and _OF_TRAINING.search(each.text)]
    if events:
        remedy = "look at that job's log: `nodectl jobs list`; with libnccl in it, compare NCCL's version and ulimit -s"
        actual = f"{len(events)} since boot, the last of {events[-1].process or 'an unnamed process'}"
        yield host.finding(
            SEGFAULT,
            Status.WARNING,
            expected="none of training programs",
            actual=actual,
            remedy=remedy,
            action="restart job",
            evidence=_last(events),
        )


def _links(host: Subject, found: Dmesg) -> Iterator[Finding]:
    downs = Counter(
        each.device or "?" for each in found.events if each.kind in ("ib_link", "nic_link") and each.state == "down"
    )
    limit = host.threshold(LINK_FLAPS_LIMIT)
    for device, number in downs.items():
        if number >= limit:
            events = [each for each in found.events if each.device == device]
            remedy = "clean or change cable and transceiver, then look at the switch's port"
            expected = f"fewer than {limit:g} losses of a link since boot"
            yield host.finding(
                LINK_LOG,
                Status.WARNING,
                device,
                expected=expected,
                actual=str(number),
                remedy=remedy,
                evidence=_last(events),
            )


def _last(events: list[KernelEvent]) -> str:
    return " ".join(filter(None, [events[-1].time, events[-1].text[:_SHOWN]]))
