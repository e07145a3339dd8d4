"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

# a narrower column of words is hard to read: its words stand below the line then
_LEAST_ROOM = 16
_BELOW = "    "
_UNBROKEN = "\N{NO-BREAK SPACE}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, two blanks between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def fitted(rows: Sequence[Sequence[str]], width: int, column: int = -1, label: str = "") -> str:
    """Return it as `aligned`; if that is wider than `width` the words of `column` go on in the next lines.

    Where the other columns leave too little room for one of them, they stand below their line, after `label`.
    """
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    room = width - sum(widths) - 2 * (len(widths) - 1) + widths[column]
    if room >= widths[column]:
        return aligned(rows)
    # with its comma
    longest = 1 + max(len(part) for row in rows for part in row[column].split(", "))
    if room < max(_LEAST_ROOM, min(longest, width - len(_BELOW))):
        return _below(rows, width, column, label)
    place = column % len(widths)
    lines = []
    for row in rows:
        for number, piece in enumerate(_wrapped(row[column], room)):
            blank = [""] * len(row) if number else list(row)
            lines.append([*blank[:place], piece, *blank[place + 1 :]])
    return aligned(lines)


def _below(rows: Sequence[Sequence[str]], width: int, column: int, label: str) -> str:
    place = column % len(rows[0])
    lines = aligned([[*row[:place], *row[place + 1 :]] for row in rows]).splitlines()
    named = ["" if row[column] in ("", "-") else f"{label}{row[column]}" for row in rows[1:]]
    below = [[], *(_wrapped(lines_below, width - len(_BELOW)) for lines_below in named)]
    return "\n".join(
        text
        for line, lines_below in zip(lines, below, strict=True)
        for text in (line, *(_BELOW + one for one in lines_below if one))
    )


def broken(line: str, width: int) -> list[str]:
    """Return the line in pieces of at most `width`, broken between the parts of a list if there is one."""
    if len(line) <= width:
        return [line]
    parts = [part if len(part) >= width - len(_BELOW) else part.replace(" ", _UNBROKEN) for part in line.split(", ")]
    return [piece.replace(_UNBROKEN, " ") for piece in wrap(", ".join(parts), width, subsequent_indent=_BELOW)]


def _wrapped(text: str, width: int) -> list[str]:
    """Broken between the parts of a list rather than within them: not between a number and its unit."""
    parts = [part if len(part) >= width else part.replace(" ", _UNBROKEN) for part in text.split(", ")]
    lines = wrap(", ".join(parts), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines] or [""]
