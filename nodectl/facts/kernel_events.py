"""The kernel's log of this boot: errors of GPUs, links and memory."""

import re
from collections import Counter
from dataclasses import replace

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, ends_within_line, is_flood, output_of_root, parse, whole_lines
from nodectl.model.recording import Command, Recording
from nodectl.parsers.linux.dmesg import Dmesg, parse_dmesg

# raw: only so does a line say whether the kernel wrote it, or a program
_DMESG = Command("dmesg", ("dmesg", "-r"), deadline_s=20, hardware=True, root=True, newest=True)
# programs write with another facility than the kernel's 0
_OF_KERNEL = re.compile(r"^<[0-7]>|\A(?!(?s:.*)^<\d)(?s:.*?)^\S", re.MULTILINE)


def _read(recording: Recording) -> Dmesg:
    done = recording.entries.get(_DMESG.key)
    # a recording holds as much as it may: what it has tells of a lost GPU all the same
    is_part = done is not None and (
        (done.cut and done.exit_status is None and not is_flood(done))
        or (done.exit_status == 0 and ends_within_line(done.stdout))
    )
    text = (
        whole_lines(done.stdout) if done is not None and is_part and done.stdout else output_of_root(recording, _DMESG)
    )
    if not _OF_KERNEL.search(text):  # nothing was looked at: that is not a log without errors
        raise ParseError(
            "the kernel's log is empty, but for what programs wrote: it was cleared, or is kept from this host"
        )
    return replace(parse(parse_dmesg, text), is_part=is_part)


def _words(log: Dmesg) -> str:
    kinds = Counter(event.kind for event in log.events)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no event of note"


FACT = Fact("kernel_events", (_DMESG,), _read, _words, row=710)
