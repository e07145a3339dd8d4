"""What lines of the kernel's log mean: the catalogue (data/linux/kernel_messages.yml), and which entry a line is.

The parser takes the patterns from it, the checks the judgement: each message stands in one place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from nodectl.common.resources import data_dir, table


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One kind of message: how it is known, how bad it is, and what to do."""

    name: str
    words: tuple[str, ...]
    title: str
    status: str
    action: str
    remedy: str
    source: str
    pattern: str = ""
    at_least: int = 1


@cache
def kernel_messages() -> Mapping[str, KernelMessage]:
    """All entries by their names, in the order of the file."""
    rows = table(data_dir() / "linux" / "kernel_messages.yml")["messages"]
    return {
        name: KernelMessage(**{**entry, "name": name, "words": tuple(entry["words"])}) for name, entry in rows.items()
    }


@cache
def message_words() -> tuple[str, ...]:
    """Each word that some entry looks for, once."""
    return tuple(dict.fromkeys(word for message in kernel_messages().values() for word in message.words))


@lru_cache(maxsize=1024)  # a log repeats itself
def message_of(text: str) -> tuple[KernelMessage, str | None] | None:
    """Return the first entry that a message's text matches, and the part that it names."""
    for message in kernel_messages().values():
        # most commands that read a log need few of the patterns: each is compiled when one of its words is found
        if any(word in text for word in message.words) and (hit := re.search(message.pattern, text)):
            return message, next(filter(None, hit.groupdict().values()), None)
    return None
