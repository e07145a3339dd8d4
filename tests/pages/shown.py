"""Whether what a page shows is what a command printed: numbers and white space equal any other, `…` is any text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_ANY = re.compile(r"(\s*…\s*)")
# digits after a letter belong to a name: node02, eth0, cu128, node[01-03]
_TOKENS = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<name>[^\W\d]\w*(?:\[[\d,-]+\])?)"
    r"|(?P<number>[-+\u2212]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+\b)?)"
    r"|(?P<rule>([─━═=-])\5{2,})"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)"
)
_PATTERNS = {
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
    "number": r"[-+\u2212]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?",
    "space": r"\s+",
}


@cache
def _pattern(shown: str) -> re.Pattern[str]:
    parts = _ANY.split(shown.strip())
    texts = [".*?" if place % 2 else f"({_of_text(part)})" for place, part in enumerate(parts)]
    return re.compile(rf"(\s*){''.join(texts)}\s*")


def _of_text(text: str) -> str:
    return "".join(
        f"{re.escape(token['rule'][0])}{{3,}}"
        if token.lastgroup == "rule"
        else _PATTERNS.get(str(token.lastgroup), re.escape(token[0]))
        for token in _TOKENS.finditer(text)
    )


def as_it_was(shown: str, real: str) -> str | None:
    """The shown line with the figures of the real one, `…` kept; None where they are not the same line."""
    match = _pattern(shown).fullmatch(real)
    if match is None:
        return None
    indentation, *texts = match.groups()
    between = [*_ANY.findall(shown.strip()), ""]
    return (indentation + "".join(text + some for text, some in zip(texts, between, strict=True))).rstrip()


def compared(shown: Sequence[str], real: Sequence[str]) -> tuple[list[str], str | None]:
    """The shown lines with the real figures, up to the first that does not come: that one, or None if all do."""
    rest = iter(real)
    renewed: list[str] = []
    for line in shown:
        if line.strip() == "…":
            renewed.append(line)
            continue
        found = next((same for same in (as_it_was(line, other) for other in rest) if same is not None), None)
        if found is None:
            return renewed, line
        renewed.append(found)
    return renewed, None
