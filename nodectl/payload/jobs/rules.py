"""What an exception's type and words mean (rules.json), and whether it is a cause or the echo of another's end.

Nodes read it, as they choose what to tell each other and whether a restart can help; the controller reads it no more.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
from typing import Any, Dict, NamedTuple, Optional, Pattern, Sequence, Tuple, cast

from ..common.patterns import lazily

COMMUNICATION, TIMEOUT, SCRIPT = "communication", "collective_timeout", "script_error"

with open(os.path.join(os.path.dirname(__file__), "rules.json"), "rb") as _stream:
    _TABLES: Dict[str, Any] = json.load(_stream)


def _any_of(alternatives: Optional[Sequence[str]], flags: int = 0) -> Optional[Pattern[str]]:
    return lazily("|".join(alternatives), flags) if alternatives else None


_SIGNS = {name: cast("Pattern[str]", _any_of(signs, re.IGNORECASE)) for name, signs in _TABLES["signs"].items()}
# what another rank's end, or its absence, makes of a healthy rank
_ECHO, _TIMED_OUT = _SIGNS["echo"], _SIGNS["timed_out"]
# the same, of any program: an echo only where torch's communication raised it
_CONNECTION = _SIGNS["connection"]
# torch's writers lose the system's word for what went wrong
_WRITE_FAILED = _SIGNS["write_failed"]
# what a message quotes is somebody else's word
_QUOTED = lazily(r'"[^"\n]{1,300}"')
_TORCH_DISTRIBUTED = lazily(r"torch[/\\]distributed[/\\]")


class Rule(NamedTuple):
    """An exception whose type (its last word) or words fit is of this class; of the table the first that fits counts.

    `example` is a last line of a traceback that it is for. Types and words are alternatives, regular expressions each.
    """

    category: str
    example: str
    types: Optional[Pattern[str]]
    words: Optional[Pattern[str]]

    def fits(self, name: str, message: str) -> bool:
        """Tell whether type or words fit."""
        return bool((self.types and self.types.fullmatch(name)) or (self.words and self.words.search(message)))


def _rules(name: str) -> Tuple[Rule, ...]:
    return tuple(
        Rule(row["category"], row["example"], _any_of(row.get("types")), _any_of(row.get("words"), re.IGNORECASE))
        for row in _TABLES[name]
    )


# causes that speak with a communication library's words: looked at before those of an echo
AMONG_RANKS, RULES = _rules("among_ranks"), _rules("rules")
_ERRNO = {getattr(errno, name): category for category, names in _TABLES["errno"].items() for name in names}
# what a process of multiprocessing meets where the other one has gone
_HELPER_GONE = lazily(r"EOFError|BrokenPipeError|FileNotFoundError|Connection(?:Reset|Refused|Aborted)Error")
_HELPER = lazily(r"[/\\]multiprocessing[/\\](?:connection|managers|resource_sharer|reductions?)\.py")
_NEWEST = 2

Link = Dict[str, Any]


def name_of(kind: str) -> str:
    """`OutOfMemoryError` of `torch.OutOfMemoryError`."""
    return kind.rpartition(".")[2]


def category_of(chain: Sequence[Link], full: Sequence[str] = ()) -> str:
    """Return the class of an exception with what it came from, the raised one first; `full`: folders without room.

    What it was explicitly raised from is nearer to the cause; what was only being handled counts if nothing else
    tells.
    """
    if any(_is_echo(link) for link in chain):
        echoed = [link for link in chain if _is_echo(link)]
        return TIMEOUT if any(_TIMED_OUT.search(link["message"]) for link in echoed) else COMMUNICATION
    causes = [*chain[:1], *itertools.takewhile(lambda link: link.get("role") == "cause", chain[1:])]
    for links in (list(reversed(causes)), [link for link in chain if link not in causes]):
        for link in links:
            category = _own(link, full)
            if category != SCRIPT:
                return category
    return SCRIPT


def _own(link: Link, full: Sequence[str]) -> str:
    message, name = str(link["message"]), name_of(str(link["type"]))
    for rule in AMONG_RANKS:
        if rule.fits(name, message):
            return rule.category
    if _WRITE_FAILED.search(message):
        return _full_place(full) if full else "hardware_io"
    newest_frames = (link.get("frames") or ())[-_NEWEST:]
    if _HELPER_GONE.fullmatch(name) and any(_HELPER.search(str(frame[0])) for frame in newest_frames):
        return "helper_killed"
    number = None if name.startswith("SSL") else link.get("errno")  # SSL counts its own: 1 is not EPERM
    by_number = _ERRNO.get(number, "") if isinstance(number, int) else ""
    if number == errno.ENOSPC:
        return _full_place(full, message)
    if by_number:
        return by_number
    return next((rule.category for rule in RULES if rule.fits(name, _QUOTED.sub('""', message))), SCRIPT)


def _full_place(full: Sequence[str], message: str = "") -> str:
    """Return where no room was left: in memory, where the words say so or only that was full."""
    memory = "/dev/shm"  # noqa: S108
    return "shared_memory_full" if memory in full and (memory in message or set(full) == {memory}) else "disk_full"


def _is_echo(link: Link) -> bool:
    message, name = str(link["message"]), str(link["type"])
    if any(rule.fits(name_of(name), message) for rule in AMONG_RANKS):
        return False
    if _ECHO.search(message) or _TIMED_OUT.search(message):
        return True
    frames = link.get("frames") or ()
    return bool(_CONNECTION.search(message)) and (
        not frames or any(_TORCH_DISTRIBUTED.search(str(f[0])) for f in frames)
    )


def of_text(message: str, full: Sequence[str] = ()) -> str:
    """Return the class of an exception of which only its last lines are known; `full`: folders without room then."""
    name = message.partition(":")[0].strip()
    return category_of([{"type": name, "message": message, "role": "raised"}], full)


def is_echo(category: str) -> bool:
    """Tell whether it follows from another rank's end, or absence."""
    return category in (COMMUNICATION, TIMEOUT)
