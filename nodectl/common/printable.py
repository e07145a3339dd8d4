"""Text that others wrote, as a terminal may show it: what would drive it, or cannot be written, is spelled out."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, separators of lines, the bidirectional overrides, and surrogates without a pair
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""`text` with control characters spelled out (`\x1b`); lines stay lines."""
    return _UNSAFE.sub(_spelled, text)


def one_line(text: str) -> str:
    r"""Return `printable(text)` with newlines and tabs spelled out, too (`\n`)."""
    return re.sub("[\n\t]", _spelled, printable(text))


def _spelled(match: re.Match[str]) -> str:
    return repr(match.group())[1:-1]
