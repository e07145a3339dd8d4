"""The five statuses, their order, and the exit status that they add up to."""

from collections.abc import Iterable
from enum import StrEnum


class Status(StrEnum):
    """Outcome of a check or a host; `rank` sorts the worst first."""

    FAILED = "failed"
    UNKNOWN = "unknown"
    WARNING = "warning"
    OK = "ok"
    SKIPPED = "skipped"

    @property
    def rank(self) -> int:
        """The place in the order of gravity: 0 is the worst."""
        return list(Status).index(self)


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of them; OK if there is none."""
    return min(statuses, key=lambda status: status.rank, default=Status.OK)


def exit_status(statuses: Iterable[Status], *, strict: bool = False) -> int:
    """1 if any failed, else 3 if anything could not be told, else 0; `strict` makes warnings 1."""
    present = set(statuses)
    if Status.FAILED in present or (strict and Status.WARNING in present):
        return 1
    return 3 if Status.UNKNOWN in present else 0
