"""Whether what a page shows is what a command printed: numbers and white space equal any other, `…` is any text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

# digits after a letter belong to a name: node02, eth0, cu128, node[01-03]
_TOKENS = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<name>[^\W\d]\w*(?:\[[\d,-]+\])?)"
    r"|(?P<number>[-+\u2212]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+\b)?)"
    r"|(?P<rule>([─━═=-])\5{2,})"
    r"|(?P<any>\s*…\s*)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)"
)
_PATTERNS = {
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
    "number": r"[-+\u2212]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?",
    "any": r".*?",
    "space": r"\s+",
}


@cache
def _pattern(shown: str) -> re.Pattern[str]:
    tokens = _TOKENS.finditer(shown.strip())
    return re.compile(rf"\s*{''.join(map(_of_token, tokens))}\s*")


def _of_token(token: re.Match[str]) -> str:
    if token.lastgroup == "rule":
        return f"{re.escape(token['rule'][0])}{{3,}}"
    return _PATTERNS.get(str(token.lastgroup), re.escape(token[0]))


def is_like(shown: str, real: str) -> bool:
    """Whether the real line is the shown one, but for its figures."""
    return _pattern(shown).fullmatch(real) is not None


def first_missing(shown: Sequence[str], real: Sequence[str]) -> int | None:
    """The place of the first shown line that does not come, in this order; None if all do."""
    rest = iter(real)
    for place, line in enumerate(shown):
        if line.strip() != "…" and not any(is_like(line, other) for other in rest):
            return place
    return None
