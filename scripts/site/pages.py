"""Markdown of the pages as the site's parser takes it: pure functions from text to text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent

_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"([-*+]|\d+\.) ")
# a target with a space, or without its closing bracket, is none
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\n]*)\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)*\1(?!`)")
# a | in a cell
_BAR = r"\|"
_UNESCAPED = re.compile(r"(?<!\\)\|")
_MARKUP = re.compile(r"([\\*_>\[\]#])")
_PAGES_OF = re.compile(r"^<!-- pages of (\S+/) -->$", re.MULTILINE)


def title(markdown: str) -> str:
    """Return the first heading, without its markup; empty if there is none."""
    found = _HEADING.search(markdown)
    return found[1].replace("`", "").strip() if found else ""


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield the lines, and of each whether it is text: no fence, and not within one."""
    closes = ""
    for line in markdown.split("\n"):
        fence = _FENCE.match(line)
        if fence and not closes:
            closes = fence[1]
            yield False, line
        elif closes:
            closes = "" if fence and fence[1] == closes else closes
            yield False, line
        else:
            yield True, line


def with_lists_apart(markdown: str) -> str:
    """Return the text with an empty line between a paragraph and the list right below it, as GitHub reads it."""
    lines: list[str] = []
    for is_text, line in _parts(markdown):
        above = lines[-1] if lines else ""
        if is_text and _ITEM.match(line) and above.strip() and not _ITEM.match(above) and above[0] not in " \t":
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def linked(markdown: str, place: str, root: Path) -> tuple[str, list[str]]:
    """Return the page docs/`place` with links to the repository's other files as code, and its wrong links.

    The site holds the pages of docs/ alone. Links between them are mkdocs' to judge.
    """
    problems: list[str] = []

    def replaced(link: re.Match[str]) -> str:
        text, target = link["text"], link["target"]
        if ":" in target.partition("/")[0] or target.startswith("//"):
            problems.extend(_malformed(target))
            return link[0]
        if target.startswith("/"):
            problems.append(f"link to {target}: say it from the folder of this page")
            return link[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(place), target.partition("#")[0]))
        if path.partition("/")[0] == "docs":
            return link[0]
        if not (root / path).exists():
            problems.append(f"link to {target}, and the repository has no {path}")
        return text if text.startswith("`") else f"{text} (`{path}`)"

    lines = [_outside_code(line, replaced) if is_text else line for is_text, line in _parts(markdown)]
    return "\n".join(lines), problems


def _outside_code(line: str, replaced: Callable[[re.Match[str]], str]) -> str:
    """Return the line with its links replaced; what a code span holds is none."""
    spans = [found.span() for found in _CODE.finditer(line)]
    return _LINK.sub(
        lambda link: link[0] if any(begin < link.start() < end for begin, end in spans) else replaced(link), line
    )


def _malformed(address: str) -> Iterator[str]:
    """Yield what is wrong with the form of another site's address; whether it answers is not asked."""
    parts = urlsplit(address)
    if parts.scheme == "mailto":
        return
    if parts.scheme != "https":
        yield f"link to {address}: another site is linked as https://…"
    elif not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc) or re.search(r"\s", address):
        yield f"link to {address}: that is no address"


def listed(markdown: str, place: str, below: Callable[[str], Sequence[tuple[str, str]]]) -> str:
    """Return the page with `<!-- pages of FOLDER/ -->` as links to the pages that `below` tells of, (title, path)."""

    def items(found: re.Match[str]) -> str:
        here = posixpath.dirname(place) or "."
        return "\n".join(f"- [{name}]({posixpath.relpath(path, here)})" for name, path in below(found[1]))

    return _PAGES_OF.sub(items, markdown)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that hold markup; one without rows has no heading either."""
    lines = [f"| {' | '.join(map(_cell, cells))} |" for cells in rows]
    return "\n".join([f"| {' | '.join(heading)} |", "|" + "---|" * len(heading), *lines]) if lines else ""


def _cell(text: str) -> str:
    return _UNESCAPED.sub(lambda _: _BAR, text)


def plain(text: str) -> str:
    """Text as it stands, on one line: what would be markup is none, but for code spans."""
    return _apart(" ".join(text.split()), _shown, str)


def _shown(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text).replace("<", "&lt;")


def _apart(line: str, text: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Return the line with its code spans, and what stands between them, each changed."""
    parts: list[str] = []
    end = 0
    for span in _CODE.finditer(line):
        parts += [text(line[end : span.start()]), code(span[0])]
        end = span.end()
    return "".join([*parts, text(line[end:])])


def with_bars(markdown: str) -> str:
    """Return the text with `|` in the code of cells as the site's parser takes it: GitHub has a backslash there."""
    rows = (is_text and line.startswith("|") for is_text, line in _parts(markdown))
    lines = markdown.split("\n")
    return "\n".join(
        _apart(line, str, lambda code: code.replace(_BAR, "|")) if row else line
        for row, line in zip(rows, lines, strict=True)
    )


def body(markdown: str) -> str:
    """Return the text below the title."""
    return _HEADING.sub("", markdown, count=1).strip()


def section(markdown: str, heading: str) -> str:
    """Return the text below that heading of the second level; KeyError if there is none."""
    _, there, rest = markdown.partition(f"\n## {heading}\n")
    if not there:
        raise KeyError(f"no heading {heading!r}")
    return rest.partition("\n## ")[0].strip()
