"""A host's raw command outputs: the form in which facts travel, and what a recording folder holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEADLINE_S = 10
# how the keys of a site's own checks begin, and their ids
SITE = "site_"


@dataclass(frozen=True, slots=True)
class Command:
    """Hold what the collector runs under `key`; it is ended after `deadline_s`.

    `hardware`: only a real machine can answer, so that a lab host that is dressed in a recording answers from it.
    `root`: a login that is not root runs it by `sudo -n`. `sudo` is what its script runs so by itself, with patterns of
    devices. `waits`: it asks a service, or a file system of another host. `newest`: of more than fits the end is kept.
    `program` is a file that the host must have to run it; it is sent if it is not there (`recordings/programs.py`).
    """

    key: str
    argv: tuple[str, ...]
    deadline_s: int = DEADLINE_S
    hardware: bool = False
    root: bool = False
    sudo: tuple[tuple[str, ...], ...] = ()
    waits: bool = False
    newest: bool = False
    program: bytes = field(default=b"", repr=False)

    @property
    def is_quick(self) -> bool:
        """It is answered at once on a host that is well: the collector runs such commands together, in one shell."""
        return self.deadline_s == DEADLINE_S and not (self.root or self.sudo)


@dataclass(frozen=True, slots=True)
class Entry:
    """A command's output; `exit_status` None: cut or not ended, 127: not installed; `recorded`: a lab's source."""

    key: str
    argv: tuple[str, ...]
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    cut: bool = False
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """All entries of one host; `clock_offset_s` is its clock minus ours, None if nobody compared them.

    `clock_error_s` bounds the offset: the time between asking and hearing the host's clock. `recorded` names the
    recording that this was read from, or in which the lab host is dressed; None for what a host itself says. `time` is
    when it was taken, in seconds since 1970 by our clock.
    """

    host: str
    entries: Mapping[str, Entry]
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    recorded: str | None = None
    time: float | None = None
