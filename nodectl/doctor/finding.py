"""Findings about the machine on which nodectl runs, and looks that end no other look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb

from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.status import Status

# no host of an inventory is called so: Ansible's names have no blanks
HERE = "this machine"
_FINE = (Status.OK, Status.SKIPPED)


def here(
    check: str, status: Status, actual: str, *, expected: str = "", remedy: str = "", subject: str = ""
) -> Finding:
    """A finding about this machine; what is fine needs no remedy."""
    remedy = "" if status in _FINE else remedy
    return Finding(HERE, check, status, subject, expected=expected, actual=actual, remedy=remedy)


def looked(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a look; where it fails, what it found so far and that the rest could not be told."""
    try:
        yield from look()
    except NodectlError as error:
        yield here(check, Status.FAILED, error.message, remedy=error.remedy)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        yield here(check, Status.UNKNOWN, f"{where}{error.strerror or error}", remedy="look at what it names")
    except Exception as error:  # what is half broken breaks in ways that nobody thought of
        *_, (frame, line) = walk_tb(error.__traceback__)
        place = f"line {line} of {Path(frame.f_code.co_filename).name}"
        actual = f"could not be looked at: {type(error).__name__}: {error} ({place})"
        yield here(check, Status.UNKNOWN, actual, remedy="repair what it names, or please report it")
