"""A host's raw command outputs: the form in which facts travel, and what a recording folder holds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """What the collector runs under `key`; it is ended after `deadline_s`."""

    key: str
    argv: tuple[str, ...]
    deadline_s: int = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """Output of one command; `exit_status` is None where it was cut or never ended, 127 where it is not installed."""

    key: str
    argv: tuple[str, ...]
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """All entries of one host; `clock_offset_s` is its clock minus ours, None where nobody compared them.

    `clock_error_s` bounds the offset: the time between asking and hearing the host's clock.
    """

    host: str
    entries: Mapping[str, Entry]
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
