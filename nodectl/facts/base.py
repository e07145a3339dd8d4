"""What a fact is: the commands it needs and the pure function that reads their outputs."""

from collections.abc import Callable
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.model.facts import Unread
from nodectl.model.recording import Command, Entry, Recording

NOT_INSTALLED = 127
DEADLINE = 124


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


def tool(found: Entry) -> str:
    """What the operator calls it: the program's name, not its path."""
    return found.argv[0].rpartition("/")[2] if found.argv else found.key
