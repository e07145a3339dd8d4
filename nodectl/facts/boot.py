"""The running boot: its id, by which two readings are known to be of the same one, and the uptime."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import text_fact
from nodectl.model.recording import Command

_COMMAND = Command("boot", ("cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime"), hardware=True)
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Boot:
    """The running boot: what was seen in another one is past."""

    boot_id: str
    uptime_s: float


def _parse(text: str) -> Boot:
    words = text.split()
    try:
        boot_id, uptime, _ = words
        uptime_s = float(uptime)
    except ValueError as error:
        raise ParseError(
            f"boot: {' '.join(words)!r}: the output is cut: a boot's id and two numbers of seconds were expected"
        ) from error
    return Boot(boot_id, uptime_s)


def _words(boot: Boot) -> str:
    return f"up {boot.uptime_s / _HOUR_S:.0f} h"


FACT = text_fact("boot", _COMMAND, _parse, _words, row=310)
