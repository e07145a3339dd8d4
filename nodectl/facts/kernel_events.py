"""The kernel's log of this boot: errors of GPUs, links and memory."""

import re
from collections import Counter

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output_of_root, parse
from nodectl.model.recording import Command, Recording
from nodectl.parsers.linux.dmesg import Dmesg, parse_dmesg

# raw: only so does a line say whether the kernel wrote it, or a program
_DMESG = Command("dmesg", ("dmesg", "-r"), deadline_s=20, hardware=True, root=True, newest=True)
# programs write with another facility than the kernel's 0
_OF_KERNEL = re.compile(r"^(?:<[0-7]>|(?!<\d)\S)", re.MULTILINE)


def _read(recording: Recording) -> Dmesg:
    text = output_of_root(recording, _DMESG)
    if not _OF_KERNEL.search(text):  # nothing was looked at: that is not a log without errors
        raise ParseError(
            "the kernel's log is empty, but for what programs wrote: it was cleared, or is kept from this host"
        )
    return parse(parse_dmesg, text)


def _words(log: Dmesg) -> str:
    kinds = Counter(event.kind for event in log.events)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no event of note"


FACT = Fact("kernel_events", (_DMESG,), _read, _words, row=710)
