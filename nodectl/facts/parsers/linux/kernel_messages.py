"""What lines of the kernel's log mean: the catalogue (data/linux/kernel_messages.yml), and which entry a line is.

The parser takes the patterns from it, the checks the judgement: each message stands in one place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

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
    pattern: re.Pattern[str] | None = None
    at_least: int = 1

    def match(self, text: str) -> tuple[str | None] | None:
        """Return the part that the message names; None where the text is another message."""
        if not any(word in text for word in self.words):
            return None
        if self.pattern is None:
            return (None,)
        hit = self.pattern.search(text)
        return (next(filter(None, hit.groupdict().values()), None),) if hit else None


@cache
def kernel_messages() -> Mapping[str, KernelMessage]:
    """All entries by their names, in the order of the file."""
    rows = table(data_dir() / "linux" / "kernel_messages.yml")["messages"]
    return {name: _message(name, entry) for name, entry in rows.items()}


def _message(name: str, entry: Mapping[str, Any]) -> KernelMessage:
    pattern = re.compile(entry["pattern"]) if "pattern" in entry else None
    return KernelMessage(**{**entry, "name": name, "words": tuple(entry["words"]), "pattern": pattern})


@cache
def message_words() -> tuple[str, ...]:
    """Each word that some entry looks for, once."""
    return tuple(dict.fromkeys(word for message in kernel_messages().values() for word in message.words))


def message_of(text: str) -> tuple[KernelMessage, str | None] | None:
    """Return the entry of a message's text, and the part that it names."""
    for message in kernel_messages().values():
        groups = message.match(text)
        if groups is not None:
            return message, groups[0]
    return None
