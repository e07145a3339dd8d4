"""The limits that a session gets: locked memory, open files, stack."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import script, text_fact, whole

# process 1's bounding set says what root can ever do here, and everybody may read it
_SHOW = """\
for each in l n s; do ulimit -S$each; ulimit -H$each; done
while read -r name value; do
  [ "$name" != CapBnd: ] || { printf 'cap %s\\n' "$value"; break; }
done </proc/1/status
[ ! -O /proc/1 ] || echo root
"""
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What a session gets, the lower of soft and hard: numbers in limits.conf's units, or unlimited.

    `raisable` is false where not even root here may raise a limit, as in a container. `is_root`: it is root's session.
    """

    memlock: str
    nofile: str
    stack: str
    raisable: bool = True
    is_root: bool = False


def _parse(text: str) -> SessionLimits:
    words, _, rest = text.partition("cap ")
    limits = read_limits(words.split())
    bounding, _, user = rest.strip().partition("\n")
    if not re.fullmatch(r"[0-9a-f]+", bounding.strip()):
        raise ParseError(f"CapBnd: {bounding.strip()!r}")
    raisable = bool(int(bounding, 16) >> _CAP_SYS_RESOURCE & 1)
    return SessionLimits(*limits, raisable, user == "root")


def read_limits(words: Sequence[str]) -> tuple[str, str, str]:
    """(memlock, nofile, stack) of soft and hard of each: the lower of both, the soft stack; else ParseError."""
    if len(words) != 6 or not all(word == "unlimited" or whole(word) is not None for word in words):
        raise ParseError(f"ulimit: {' '.join(words)!r}")
    memlock, nofile = (min(words[i : i + 2], key=_number) for i in (0, 2))
    return memlock, nofile, words[4]


def _number(text: str) -> float:
    return float("inf") if text == "unlimited" else float(text)


def _words(limits: SessionLimits) -> str:
    return f"session: memlock {limits.memlock}, nofile {limits.nofile}, stack {limits.stack}"


FACT = text_fact("limits", script("session-limits", _SHOW), _parse, _words, row=410)
