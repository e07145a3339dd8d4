"""The serial number that a host's maker gave it, as its firmware tells it; the kernel shows it to root alone."""

import re

from nodectl.facts.base import AbsentError, Fact, output, script
from nodectl.model.recording import Command, Recording

# with the words under which a recording's mask looks for serial numbers
_SHOW = """\
serial=
read -r serial 2>/dev/null </sys/class/dmi/id/product_serial
[ -n "$serial" ] || exit 3
printf 'serial number: %s\\n' "$serial"
"""
_COMMAND: Command = script("host-serial", _SHOW, hardware=True)
# makers who set none leave words there (`System Serial Number`, `Default string`, `None`), or a row of digits
_NUMBER = re.compile(r"(?!(.)\1*$)(?!0?123456789)(?=\D*\d)\S{4,64}")


def _read(recording: Recording) -> str:
    """The number; Absent where the firmware has none, or the login may not see it."""
    text = output(recording, _COMMAND.key, "not shown to this login, or there is none").partition(":")[2].strip()
    if not _NUMBER.fullmatch(text):
        raise AbsentError(f"its maker left {text!r} there")
    return text


FACT = Fact("host_serial", (_COMMAND,), _read, str, row=131, quiet=True)
