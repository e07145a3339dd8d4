"""A page's steps: the commands of its console blocks with the outputs that are shown, and the files it has written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
STATUS = "echo $?"
# what a page may show without having it run or written
_ONLY_SHOWN = ("text", "json", "yaml", "toml", "ini", "diff", "python")
_LONG = re.compile(r"^<!-- pages: long -->$", re.MULTILINE)
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})\s*(?P<kind>[^\s`]*)\s*(?P<attributes>[^`]*)$")
_TITLE = re.compile(r'\btitle="([^"]*)"')


class PageError(Exception):
    """What is wrong with a page, or with what it shows: page, line and what to do."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page, without its block's indentation; the first has number 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command, as bash takes it, and the lines that are shown below it."""

    line: int
    text: str
    shown: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that the page tells to write; the path is below the page's folder."""

    line: int
    path: PurePosixPath
    text: str


Step = Command | WrittenFile


@dataclass(frozen=True, slots=True)
class Page:
    """What a reader does, from top to bottom; `long` ones are run by `make test-pages` alone."""

    path: Path
    long: bool
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Its path from the checkout's root, where it lies there."""
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else str(self.path)

    @property
    def commands(self) -> list[Command]:
        return [step for step in self.steps if isinstance(step, Command)]


@dataclass(frozen=True, slots=True)
class _Block:
    line: int
    kind: str
    title: str | None
    lines: tuple[Line, ...]


def pages() -> list[Path]:
    """Every page that is run."""
    return sorted(path for folder in ("start", "how-to") for path in (ROOT / "docs" / folder).glob("*.md"))


def read_page(path: Path) -> Page:
    """The page's steps; PageError names every block that no runner understands."""
    text = path.read_text(encoding="utf-8")
    page = Page(path.resolve(), bool(_LONG.search(text)), ())
    steps: list[Step] = []
    problems: list[str] = []
    for block in _blocks(page.name, text):
        try:
            steps += _steps(block)
        except PageError as error:
            problems.append(f"{page.name}:{error}")
    if problems:
        raise PageError("\n".join(problems))
    return Page(page.path, page.long, tuple(steps))


def _blocks(name: str, text: str) -> Iterator[_Block]:
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if not (fence := _FENCE.match(line)):
            continue
        indent, inside = len(fence["indent"]), []
        for inner, content in lines:
            if content.strip() == fence["ticks"]:
                break
            inside.append(Line(inner, content[indent:] if not content[:indent].strip() else content))
        else:
            raise PageError(f"{name}:{number}: the block has no end")
        title = _TITLE.search(fence["attributes"])
        yield _Block(number, fence["kind"], title[1] if title else None, tuple(inside))


def _steps(block: _Block) -> list[Step]:
    if block.title is not None and block.kind != "console":
        return [_file(block)]
    if block.kind == "console":
        return list(_commands(block))
    if block.kind not in _ONLY_SHOWN:
        raise PageError(
            f"{block.line}: a block of kind '{block.kind}': commands stand in console blocks, a file to write has a "
            f"title, what is only shown is one of {', '.join(_ONLY_SHOWN)}"
        )
    for line in block.lines:
        if line.text.startswith("$ "):
            raise PageError(f"{line.number}: a command in a block of kind '{block.kind}' is not run: make it console")
    return []


def _file(block: _Block) -> WrittenFile:
    path = PurePosixPath(block.title or "")
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise PageError(f"{block.line}: the title '{block.title}' is no path below the page's folder")
    return WrittenFile(block.line, path, "".join(f"{line.text}\n" for line in block.lines))


def _commands(block: _Block) -> Iterator[Command]:
    if not block.lines or not block.lines[0].text.startswith("$ "):
        raise PageError(f"{block.line}: a console block begins with a command: `$ …`")
    starts = [place for place, line in enumerate(block.lines) if line.text.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        yield _command(block.lines[start:end])


def _command(lines: Sequence[Line]) -> Command:
    words = [lines[0].text[2:]]
    for line in lines[1:]:
        if line.text != ">" and not line.text.startswith("> "):
            break
        words.append(line.text[2:])
    shown = tuple(line for line in lines[len(words) :] if line.text.strip())
    return Command(lines[0].number, "\n".join(words), shown)
