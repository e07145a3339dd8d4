"""What else the kernel's log of this boot says: each kind of message once, however often and of how many parts.

The catalogue is nodectl/parsers/linux/kernel_messages.yml: how a message is known, what it means, and what to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.common.counting import counted
from nodectl.facts.board import Pcie
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg, KernelEvent
from nodectl.parsers.linux.kernel_messages import KernelMessage, kernel_messages

ORDER = 181

_SHOWN = 200
_PARTS = 4

KERNEL_MESSAGE = Check(
    "kernel_message",
    looks_at="dmesg",
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
        evidence=f"{last.text[:_SHOWN]} ({message.source})",
    )


def _part(host: Subject, name: str | None) -> str | None:
    """The part; below a PCIe port that has one device, that device: who looks at the port looks at the wrong thing."""
    pcie = host.fact("pcie", Pcie)
    below = [device for device, port in pcie.parents.items() if port == (name or "").lower()] if pcie else []
    return f"{below[0]} below {name}" if len({each.partition(".")[0] for each in below}) == 1 else name


def _named(parts: Counter[str | None]) -> str:
    """` (nvme0, nvme3)`, with how often where it is more than once; the rest as a number."""
    words = [f"{name}: {number}" if number > 1 else f"{name}" for name, number in parts.most_common(_PARTS)]
    more = [f"{len(parts) - _PARTS} more"] if len(parts) > _PARTS else []
    return f" ({', '.join([*words, *more])})" if words else ""
