"""What the board's management controller (BMC) has logged: power, fans, temperatures, memory, processors."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, output_of_root
from nodectl.model.recording import Command, Recording

# not `elist`: to name each sensor it reads the whole SDR, which takes seconds
_COMMAND = Command("bmc-log", ("ipmitool", "sel", "list", "last", "100"), deadline_s=20, hardware=True, root=True)
_NO_BMC = ("Could not open device", "No such file or directory", "Unable to open")


@dataclass(frozen=True, slots=True)
class BmcEvent:
    """One event, as ipmitool words it; `date` is the controller's, empty for what came before it had a clock."""

    date: str
    time: str
    sensor: str
    event: str
    asserted: bool


@dataclass(frozen=True, slots=True)
class BmcLog:
    """The events in their order."""

    events: tuple[BmcEvent, ...]


def _read(recording: Recording) -> BmcLog:
    try:
        text = output_of_root(recording, _COMMAND)
    except UnknownError as error:
        if any(word in str(error) for word in _NO_BMC):
            raise AbsentError("this machine has no management controller that the kernel knows") from error
        raise
    return BmcLog(tuple(_event(line) for line in text.splitlines() if "|" in line))


def _event(line: str) -> BmcEvent:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) < 5:
        raise ParseError(f"bmc-log: {line[:160]!r} is no event")
    date = cells[1] if re.fullmatch(r"\d\d/\d\d/\d{2,4}", cells[1]) else ""
    directions = [cell for cell in cells[5:] if cell in ("Asserted", "Deasserted")]
    return BmcEvent(date, cells[2], cells[3], cells[4], directions != ["Deasserted"])


def _words(log: BmcLog) -> str:
    return f"{len(log.events)} events"


FACT = Fact("bmc_log", (_COMMAND,), _read, _words, row=135, quiet=True)
