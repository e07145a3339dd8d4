"""What a parallel shell, a job runner or a paste puts before every line of a tool's output, taken away again.

Done only where the text cannot be read as it is: such a prefix may as well belong to the output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nodectl.parsers.text import RANK_TAG, plain

_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?: |$)")
# pdsh, clush, srun -l; docker compose, kubetail; a quotation
_NAME = re.compile(r"\s{0,4}[\w.@-]{1,64}: ?|[\w.@/-]{1,64} {0,20}\| ?|> ?")
# the other lines are those of the shell itself
_SHARE = 0.9
_MOST_LAYERS = 3
_FEWEST_LINES = 2
_LONGEST_PREFIX = 100
_MOST_CHARS = 32 * 2**20
# a line of JSON that is written over many
_JSON_LINE = re.compile(
    r'"(?:[^"\\]|\\.){0,400}"\s*(?::.*|,?)|[\[{}\]][\[{}\], ]*|[\[{] ?["{].*'
    r"|\[?(?:-?\d[\d.eE+-]{0,40}(?:, ?|$)){1,10000}\]?,?|(?:true|false|null),?"
)


def readings(text: str) -> Iterator[str]:
    """Other ways to read a text, of as many lines: without what stands before each line, without lines between JSON."""
    if len(text) > _MOST_CHARS:
        return
    text = plain(text)
    bare = _bare(text)
    if bare != text:
        yield bare
    if "{" in bare:
        written = "\n".join(_json_line(line) for line in bare.split("\n"))
        if written != bare:
            yield written


def _bare(text: str) -> str:
    lines = text.split("\n")
    for _ in range(_MOST_LAYERS):
        shorter = _without(lines)
        if shorter is None:
            break
        lines = shorter
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines) if margin else "\n".join(lines)


def _without(lines: list[str]) -> list[str] | None:
    written = [line for line in lines if line.strip()]
    enough = max(_FEWEST_LINES, _SHARE * len(written))
    for pattern in (RANK_TAG, _STAMP):
        if sum(pattern.match(line) is not None for line in written) >= enough:
            return [pattern.sub("", line, count=1) for line in lines]
    named = Counter(match[0].rstrip() for line in written if (match := _NAME.match(line[:_LONGEST_PREFIX])))
    if named and named.most_common(1)[0][1] >= enough:
        name = named.most_common(1)[0][0]
        has_blank = sum(line.startswith(f"{name} ") or line == name for line in written) >= enough
        return [line.removeprefix(name).removeprefix(" " if has_blank else "") for line in lines]
    return None


def _json_line(line: str) -> str:
    content = line.strip()
    return line if not content or _JSON_LINE.fullmatch(content[:20_000]) else ""
