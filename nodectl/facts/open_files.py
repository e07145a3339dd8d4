"""Files that are open on the whole host, and how many may be."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import text_fact, whole
from nodectl.model.recording import Command

_COMMAND = Command("file-nr", ("cat", "/proc/sys/fs/file-nr"), hardware=True)


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Of the whole kernel, not of one process."""

    open: int
    most: int


def _parse(text: str) -> OpenFiles:
    cells = [whole(word) for word in text.split()]
    if len(cells) != 3 or cells[0] is None or cells[1] is None or cells[2] is None:
        raise ParseError(f"file-nr: {text[:80]!r} are not three numbers")
    return OpenFiles(cells[0] - cells[1], cells[2])


def _words(files: OpenFiles) -> str:
    # the number changes all the time: hosts that have room are alike
    return "room for more" if files.open < files.most / 2 else f"{files.open} of {files.most}"


FACT = text_fact("open_files", _COMMAND, _parse, _words, row=805)
