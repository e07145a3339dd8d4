"""A judgement on one host: what was expected, what is, and what to do."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter

from nodectl.model.status import Status


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a verdict; `action` is one of none, restart job, reset GPU, reboot, drain, replace.

    A probe's finding also says what it blames: `kind` is host, path or direction, `hosts` are the ends of a path.
    """

    host: str
    check: str
    status: Status
    subject: str = ""
    action: str = "none"
    expected: str = ""
    actual: str = ""
    remedy: str = ""
    evidence: str = ""
    kind: str = ""
    hosts: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle, which would look up the fields of each: of a large fleet a hundred thousand cross processes."""
        return Finding, _values(self)


_values: Callable[[Finding], tuple[object, ...]] = attrgetter(*(field.name for field in fields(Finding)))
