"""What a fact is: the commands it needs and the pure function that reads their outputs."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from nodectl.errors import ParseError
from nodectl.model.facts import Unread
from nodectl.model.recording import Command, Entry, Recording
from nodectl.parsers.catalogue import parser_of

NOT_INSTALLED = 127
DEADLINE = 124
# what a script says where the kernel or the system has no such thing at all
NOT_THERE = 3
_SAID = 200
# no counter of a kernel has more digits
_WHOLE = re.compile(r"-?[0-9]{1,20}")

T = TypeVar("T")


class AbsentError(Exception):
    """The tool or device is not there: the subject has no values."""


class UnknownError(Exception):
    """It could not be read: whether it is there cannot be told."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`commands` is given the folder of the launcher's venv on the host."""

    subject: str
    commands: Callable[[str], tuple[Command, ...]]
    read: Callable[[Recording], object]


def read_fact(fact: Fact, recording: Recording) -> object:
    """The subject's dataclass, or Unread with the reason; never an exception for what a host printed."""
    try:
        return fact.read(recording)
    except AbsentError as error:
        return Unread("absent", str(error))
    except (UnknownError, ParseError) as error:
        return Unread("unknown", str(error))
    except (ValueError, ArithmeticError, LookupError) as error:  # a number of no computer, a cell that is not there
        return Unread("unknown", f"not understood: {str(error)[:_SAID]}")


def entry(recording: Recording, key: str) -> Entry:
    """The entry of a command that ran to its end; Absent where its tool is not installed, Unknown where it was cut."""
    found = recording.entries.get(key)
    if found is None:
        raise UnknownError(f"{key} is not in the recording")
    if found.exit_status == NOT_INSTALLED:
        raise AbsentError(f"{tool(found)} is not installed")
    if found.exit_status == DEADLINE:
        raise UnknownError(f"{tool(found)} did not end in time")
    if found.cut or found.exit_status is None:
        raise UnknownError(f"the output of {tool(found)} was cut")
    return found


def output(recording: Recording, key: str) -> str:
    """The standard output of a command that succeeded; Unknown with its complaint where it failed."""
    found = entry(recording, key)
    if found.exit_status != 0:
        complaint = (found.stderr.strip() or found.stdout.strip()).splitlines()[:1]
        raise UnknownError(f"{tool(found)}: exit status {found.exit_status}: {''.join(complaint)}")
    return found.stdout


def output_unless_missing(recording: Recording, key: str, missing: str) -> str:
    """As `output`; Absent with `missing` where the script says that the host has no such thing."""
    if entry(recording, key).exit_status == NOT_THERE:
        raise AbsentError(missing)
    return output(recording, key)


def parsed(recording: Recording, key: str, parser: Callable[[str], T]) -> T:
    """What `parser` reads of a command's output, and of what it printed before it failed."""
    found = entry(recording, key)
    # a tool that failed may have told something before: a lost GPU ends nvidia-smi after the rows of the others
    return parse(parser, found.stdout if found.stdout.strip() else output(recording, key))


def parse(parser: Callable[[str], T], text: str) -> T:
    """`parser(text)`, read once for all facts that need it."""
    found: T = _remembered(parser, text)  # type: ignore[assignment]
    return found


@lru_cache(maxsize=32)
def _remembered(parser: Callable[[str], object], text: str) -> object:
    return parser(text)


def told(recording: Recording, tool_name: str, key: str | None = None) -> Any:
    """As `parsed`, by the parser of that name in the catalogue, which is imported only where there is text for it."""
    entry(recording, key or tool_name)
    return parsed(recording, key or tool_name, parser_of(tool_name))


def tool(found: Entry) -> str:
    """What the operator calls it: the program's name, not its path; of a script, its key."""
    name = found.argv[0].rpartition("/")[2] if found.argv else found.key
    return found.key if name in ("sh", "cat") else name


def rows(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Lines of our own scripts: cells between tabs, first those without a name, then `name=value`."""
    for line in text.splitlines():
        if line.strip():
            cells = line.split("\t")
            named = dict(cell.split("=", 1) for cell in cells if "=" in cell)
            yield [cell for cell in cells if "=" not in cell], {name: value for name, value in named.items() if value}


def whole(text: str | None) -> int | None:
    """A count; None where the script had none to show, or what is none."""
    return int(text) if text and _WHOLE.fullmatch(text) else None
