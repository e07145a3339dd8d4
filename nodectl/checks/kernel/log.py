"""What the kernel's log tells of this boot beside the GPUs: memory, crashes, links that flap, and known messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.common.counting import counted
from nodectl.facts.board import Pcie
from nodectl.facts.parsers.linux.dmesg import Dmesg, KernelEvent
from nodectl.facts.parsers.linux.kernel_messages import KernelMessage, kernel_messages
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 180


_SHOWN = 120

OOM = Check(
    "oom",
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


def _line(event: KernelEvent) -> str:
    return " ".join(filter(None, [event.time, event.text[:_SHOWN]]))


@judges_fact(
    Dmesg,
    *(OOM, MACHINE_CHECK),
    reads=("kernel_events",),
    unread="the kernel's log of this boot",
    or_absent=True,
    borrowed="kernel",
)
def log(host: Subject, log: Dmesg) -> Iterator[Finding]:
    """Judge the kernel's log since the boot."""
    yield from host.all_of(OOM, _oom(host, log), actual="none in the log")
    yield from host.all_of(MACHINE_CHECK, _machine_checks(host, log), actual="none in the log")


# What else the kernel's log of this boot says: each kind of message once, however often and of how many parts.
# The catalogue is nodectl/data/linux/kernel_messages.yml: how a message is known, what it means, and what to do.

_MESSAGES_SHOWN = 200
_PARTS = 4

KERNEL_MESSAGE = Check(
    "kernel_message",
    fires="as its catalogue says of the message: GPU, PCIe, disk, file system, adapter, processor, memory",
    expected="none of the catalogue's messages",
)


@judges_fact(
    Dmesg,
    KERNEL_MESSAGE,
    reads=("kernel_events", "pcie"),
    unread="the kernel's log of this boot",
    or_absent=True,
    borrowed="kernel",
)
def messages(host: Subject, log: Dmesg) -> Iterator[Finding]:
    """One finding for each entry of the catalogue that the log has often enough."""
    actual = f"none of {len(kernel_messages())} kinds in the log"
    yield from host.all_of(KERNEL_MESSAGE, _messages(host, log), actual=actual)


def _messages(host: Subject, log: Dmesg) -> Iterator[Finding]:
    seen: dict[str, list[KernelEvent]] = defaultdict(list)
    for event in log.events:
        seen[event.kind].append(event)
    for name, message in kernel_messages().items():
        if len(seen.get(name, ())) >= message.at_least:
            yield _message(host, message, seen[name])


def _message(host: Subject, message: KernelMessage, events: list[KernelEvent]) -> Finding:
    parts = Counter(_part(host, event.device or event.pci) for event in events if event.device or event.pci)
    last = events[-1]
    when = f", last at {last.time}" if last.time else ""
    actual = f"{message.title}: {counted(len(events), 'line')} since boot{when}{_named(parts)}"
    # several subjects of one kind would be several findings of one cause
    return host.finding(
        KERNEL_MESSAGE,
        Status(message.status),
        message.name,
        expected="no such line" if message.at_least == 1 else f"fewer than {message.at_least} such lines",
        actual=actual,
        remedy=message.remedy,
        action=message.action,
        evidence=f"{last.text[:_MESSAGES_SHOWN]} ({message.source})",
    )


def _part(host: Subject, name: str | None) -> str | None:
    """Return the part's name; of a PCIe port that has one device, the device: the port itself is not at fault."""
    pcie = host.fact("pcie", Pcie)
    below = [device for device, port in pcie.parents.items() if port == (name or "").lower()] if pcie else []
    return f"{below[0]} below {name}" if len({address.partition(".")[0] for address in below}) == 1 else name


def _named(parts: Counter[str | None]) -> str:
    shown_parts = [f"{name}: {number}" if number > 1 else f"{name}" for name, number in parts.most_common(_PARTS)]
    more = [f"{len(parts) - _PARTS} more"] if len(parts) > _PARTS else []
    return f" ({', '.join([*shown_parts, *more])})" if shown_parts else ""
