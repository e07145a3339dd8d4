"""Options as data: what a probe declares, and the command line, the settings and the documentation read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from nodectl.common.spelling import meant
from nodectl.common.units import format_size, parse_size
from nodectl.errors import UsageError

_OPTION = "option"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, or what `read` makes of it; `read` raises ValueError with what is wrong with the text."""

    metavar: str = "TEXT"
    read: Callable[[str], object] = str


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two ends, both included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time in seconds between two ends, both included."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a fixed list of words."""

    words: tuple[str, ...]


Kind = Text | Whole | Seconds | Choice


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command line: a dataclass field's type, help and name.

    `flag` is the option's name without dashes, if it is not the field's; `default` says in words what is taken if
    nothing is given, where the value itself would not say it.
    """

    kind: Kind
    help: str
    flag: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with the field that holds its value; `value` is the field's default."""

    field: str
    option: Option
    value: object

    @property
    def flag(self) -> str:
        """The option as it is written on the command line: `--gid-index`."""
        return f"--{self.option.flag or self.field.replace('_', '-')}"


def option(default: Any, kind: Kind, text: str, *, flag: str = "", shown: str = "") -> Any:
    """Return the dataclass field of an option; `text` is its help, `shown` its default in words."""
    return dataclasses.field(default=default, metadata={_OPTION: Option(kind, text, flag, shown)})


def declared(options: type) -> tuple[Declared, ...]:
    """Return the options among a dataclass' fields, in their order."""
    return tuple(
        Declared(field.name, field.metadata[_OPTION], field.default)
        for field in dataclasses.fields(options)
        if _OPTION in field.metadata
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes, ascending; `usual`: nobody asked for just these, so that others may be taken where they say more."""

    bytes: tuple[int, ...]
    usual: bool = False


def refuse_unknown(noun: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise UsageError for the first name that is not known, with the known ones."""
    for name in given:
        if name not in known:
            raise UsageError(f"there is no {noun} '{name}'", f"{meant(name, known)}one of: {', '.join(known)}")


def names(text: str) -> tuple[str, ...]:
    """Return `a,b` as names without blanks."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def size(text: str) -> int:
    """Return one size in bytes: `64MiB`, `64M`, `4096`; ValueError for any other text."""
    size_bytes = parse_size(text)
    if not size_bytes:
        raise ValueError(f"{text.strip()!r} is not a size; write 1KiB, 64MiB or a number of bytes")
    return size_bytes


def sizes(text: str) -> tuple[int, ...]:
    """Sizes in bytes, in the order given: `1KiB,64MiB`; ValueError if one is no size."""
    return tuple(map(size, text.split(",")))


def sweep(text: str) -> Sizes:
    """Return `1KiB,64MiB`, or `1KiB..1GiB`: powers of two, and the end that is named."""
    wanted: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        least = size(first)
        most = size(last) if dots else least
        if most < least:
            raise ValueError(f"{format_size(least)}..{format_size(most)} begins with the larger size")
        wanted |= {least << power for power in range((most // least).bit_length())} | {most}
    return Sizes(tuple(sorted(wanted)))


def rounds(text: str) -> int:
    """Return the number of rounds; `all` is 0."""
    if text == "all":
        return 0
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ValueError(f"{text!r} is not a number of rounds; write 10, or all for every pair")
    return int(text)


def duration(text: str) -> float:
    """Return `90`, `90s`, `5m` or `1h` in seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is not a time; write 90, 90s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
