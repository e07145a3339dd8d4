"""The words that nodectl reads and writes: what its files hold, but for what they tell their reader, is nobody's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nodectl.common.resources import payload_dir

# words, joined to names, versions and paths by dashes, dots and the like
CHUNK = re.compile(r"\w+(?:[-.+~]\w+)*")
JOINTS = re.compile(r"[-.+~_]")
_SPEAKING = {".py", ".yml", ".yaml", ".sh", ".json", ".out", ".err"}
_WITH_COMMENTS = {".py", ".yml", ".yaml", ".sh"}
_TOLD = re.compile(r'^[ \t]*"""[\s\S]*?"""|(?:^[ \t]*|[ \t]{2})#[ \t].*$', re.MULTILINE)
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?:\.\d{1,5})*(?!\d)")
# a host of the examples: `node01`, and the peer of a site that is called so, too
_COUNTED = re.compile(r"[a-z-]+0\d+")


def plain(chunk: str) -> str:
    """Without case, and with 0 for a number: `mlx5_3` is `mlx0_0`; a long number and a host's (`node01`) stay."""
    lower = chunk.lower()
    return lower if _COUNTED.fullmatch(lower) else _NUMBER.sub("0", lower)


@cache
def vocabulary() -> frozenset[str]:
    """Each chunk of the package's files, and each word of one: labels of tools, patterns of parsers, recorded hosts."""
    chunks = {chunk for path in _files(payload_dir().parent) for chunk in _chunks(path)}
    return frozenset(plain(chunk) for chunk in chunks if not _COUNTED.fullmatch(chunk))


def _files(package: Path) -> Iterator[Path]:
    return (path for path in package.rglob("*") if path.suffix in _SPEAKING and path.is_file())


def _chunks(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    # in what is told to its reader stand names as examples, and no tool says it
    text = _TOLD.sub("", text) if path.suffix in _WITH_COMMENTS else text
    # `\bserial\b` of a pattern names the word serial, and no word bserial
    text = re.sub(r"\\[A-Za-z]", " ", text)
    for chunk in set(CHUNK.findall(text)):
        yield chunk.lower()
        yield from JOINTS.split(chunk.lower())
