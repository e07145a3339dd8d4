"""What the kernel's log tells of this boot beside the GPUs: memory that ran out or failed, crashes, links that flap."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.checks.network.nics import LINK_FLAPS_LIMIT
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg, KernelEvent

ORDER = 180

_SHOWN = 120

OOM = Check(
    "oom",
    looks_at="dmesg",
    fires="warning: the kernel killed a process for memory",
    expected="no process killed",
    remedy="fewer loader workers or a smaller batch; the log names who held the memory",
    action="restart job",
)


def _oom(host: Subject, log: Dmesg) -> Iterator[Finding]:
    events = [event for event in log.events if event.kind == "oom"]
    if events:
        processes = Counter(event.process or "?" for event in events)
        names = ", ".join(f"{name} ({number})" for name, number in processes.most_common(4))
        actual = f"{len(events)} killed since boot: {names}"
        yield host.finding(OOM, Status.WARNING, actual=actual, evidence=_line(events[-1]))


MACHINE_CHECK = Check(
    "machine_check",
    looks_at="dmesg",
    fires="warning: a machine check; failed: memory in use was lost",
    expected="none",
    remedy="drain the node; `ras-mc-ctl --errors` or `ipmitool sel list` names the part",
    action="drain",
)


def _machine_checks(host: Subject, log: Dmesg) -> Iterator[Finding]:
    events = [event for event in log.events if event.kind == "mce"]
    fatal = [event for event in events if event.pid is not None or "corruption" in event.text.lower()]
    if events:
        status = Status.FAILED if fatal else Status.WARNING
        lost = f", {len(fatal)} of them lost memory in use" if fatal else ""
        last = (fatal or events)[-1]
        yield host.finding(MACHINE_CHECK, status, actual=f"{len(events)} since boot{lost}", evidence=_line(last))


_OF_TRAINING = re.compile(r"libnccl|libcuda|libtorch|libc10|libibverbs|libmlx5|python|torchrun|\bpt_")
SEGFAULT = Check(
    "segfault",
    looks_at="dmesg",
    fires="warning: a training program or NVIDIA's library crashed",
    expected="none of training programs",
    remedy="look at that job's log: `nodectl jobs list`; with libnccl in it, compare NCCL's version and ulimit -s",
    action="restart job",
)


def _crashes(host: Subject, log: Dmesg) -> Iterator[Finding]:
    events = [event for event in log.events if event.kind == "segfault" and _OF_TRAINING.search(event.text)]
    if events:
        actual = f"{len(events)} since boot, the last of {events[-1].process or 'an unnamed process'}"
        yield host.finding(SEGFAULT, Status.WARNING, actual=actual, evidence=_line(events[-1]))


LINK_LOG = Check(
    "link_log",
    looks_at="dmesg",
    fires="warning: a link went down several times",
    expected="links that stay",
    remedy="clean or change cable and transceiver, then look at the switch's port",
    thresholds=(LINK_FLAPS_LIMIT,),
)


def _links(host: Subject, log: Dmesg) -> Iterator[Finding]:
    losses = [event for event in log.events if event.kind in ("ib_link", "nic_link") and event.state == "down"]
    limit = host.threshold(LINK_FLAPS_LIMIT)
    for device, number in Counter(event.device or "?" for event in losses).items():
        if number >= limit:
            last = [event for event in log.events if (event.device or "?") == device][-1]
            expected = f"fewer than {limit:g} losses of a link since boot"
            yield host.finding(
                LINK_LOG, Status.WARNING, device, expected=expected, actual=str(number), evidence=_line(last)
            )


def _line(event: KernelEvent) -> str:
    return " ".join(filter(None, [event.time, event.text[:_SHOWN]]))


@judges_fact(
    Dmesg,
    *(OOM, MACHINE_CHECK, SEGFAULT, LINK_LOG),
    reads=("kernel_events",),
    unread="the kernel's log of this boot",
    or_absent=True,
    borrowed="kernel",
)
def log(host: Subject, log: Dmesg) -> Iterator[Finding]:
    """The kernel's log since the boot."""
    yield from host.all_of(OOM, _oom(host, log), actual="none in the log")
    yield from host.all_of(MACHINE_CHECK, _machine_checks(host, log), actual="none in the log")
    yield from host.all_of(SEGFAULT, _crashes(host, log), expected="none of training", actual="none in the log")
    yield from host.all_of(LINK_LOG, _links(host, log), actual="no flap in the log")
