"""The kernel's log of this boot: errors of GPUs, links and memory."""

from nodectl.facts.base import Fact, parse
from nodectl.facts.root import as_root, root_command
from nodectl.model.recording import Recording
from nodectl.parsers.linux.dmesg import Dmesg, parse_dmesg


def _events(recording: Recording) -> Dmesg:
    text = as_root(recording, "dmesg")
    # right after `dmesg --clear` there is nothing to read, and nothing to tell
    return parse(parse_dmesg, text) if text.strip() else Dmesg(())


EVENTS = Fact("kernel_events", lambda venv: (root_command("dmesg"),), _events)
