"""Where a reading command gets its hosts' recordings: from the hosts, or from a folder."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from nodectl.common.few import few
from nodectl.common.nodeset import expand
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, ParseError, UsageError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.recordings.collect import collect
from nodectl.recordings.folder import RecordedFleet, read_host
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

CommandsOf = Callable[[Host], Sequence[Command]]
# the failed result if there is no recording
Answer = Recording | CommandResult


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The hosts themselves, in the inventory's order and `forks` at a time."""

    hosts: tuple[Host, ...]
    transport: Transport
    forks: int
    recorded: str | None = None

    def one(self, host: Host, commands: Sequence[Command]) -> Answer:
        """Return what the host answers now to these commands."""
        return collect(self.transport, host, commands)

    def recordings(self, commands_of: CommandsOf) -> Iterator[tuple[Host, Answer]]:
        """Every host with its answer, as they come."""
        return fan_out(self.hosts, lambda host: self.one(host, commands_of(host)), self.forks)


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording's folder; a host of the inventory that it does not hold is unreachable.

    `recorded` is the recording's name. `whole`: all that a host's folder holds, whatever is asked.
    """

    hosts: tuple[Host, ...]
    folders: Mapping[str, Path]
    recorded: str
    whole: bool = False

    def one(self, host: Host, commands: Sequence[Command]) -> Answer:
        """Return what the host's folder holds of these commands; no other files are read."""
        folder = self.folders.get(host.name)
        if folder is None:
            return _unreachable(host, f"the recording {self.recorded} holds no host '{host.name}'", "record it, too")
        try:
            keys = None if self.whole else {command.key for command in commands}
            return read_host(folder, host.name, self.recorded, keys)
        except ParseError as error:
            return _unreachable(host, error.message, error.remedy)
        except OSError as error:
            return _unreachable(host, f"{folder}: {error.strerror or error}", "make it readable to you")

    def recordings(self, commands_of: CommandsOf) -> Iterator[tuple[Host, Answer]]:
        """Every host with its answer, one after the other, so that no two need stay in memory."""
        for host in self.hosts:
            yield host, self.one(host, commands_of(host))


Source = LiveSource | ReplaySource


def replay_source(fleet: RecordedFleet, limit: str | None, inventory: Sequence[Host] | None = None) -> ReplaySource:
    """Return the recording's own hosts, or the `inventory`'s with the recording's profiles where it is silent."""
    if inventory is None:
        names = select(tuple(fleet.hosts), limit)
        hosts = [Host(name, name, variables=_variables(fleet, name)) for name in names]
    else:
        hosts = [_with_profiles(fleet, host) for host in inventory]
    return ReplaySource(tuple(hosts), dict(fleet.hosts), fleet.name)


def _variables(fleet: RecordedFleet, host: str) -> dict[str, object]:
    return {f"nodectl_{kind}": name for kind, name in fleet.profiles_of(host).items()}


def _with_profiles(fleet: RecordedFleet, host: Host) -> Host:
    missing = {key: name for key, name in _variables(fleet, host.name).items() if not host.variables.get(key)}
    # the inventory's variables are rendered when asked for: no copy of them
    return replace(host, variables=ChainMap(missing, host.variables)) if missing else host  # type: ignore[arg-type]


def _unreachable(host: Host, error: str, remedy: str) -> CommandResult:
    return CommandResult(host.name, (), Outcome.UNREACHABLE, None, "", "", 0.0, error, remedy)


_SEPARATOR = re.compile(r"[,:](?![^\[]*\])")


def select(names: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """Return the names that `pattern` selects, in their order; InventoryError if there is none."""
    parts = [part.strip() for part in _SEPARATOR.split(pattern or "all") if part.strip()]
    plain = [part for part in parts if part[0] not in "!&"] or ["all"]
    chosen = {name for part in plain for name in _matching(names, part)}
    for part in parts:
        if part[0] == "&":
            chosen &= _matching(names, part[1:])
        elif part[0] == "!":
            chosen -= _matching(names, part[1:])
    if not chosen:
        raise InventoryError(
            f"no host of the recording matches '{pattern}'", f"{meant(pattern or '', names)}it has {few(names, 8)}"
        )
    return tuple(name for name in names if name in chosen)


def _matching(names: Sequence[str], part: str) -> set[str]:
    if part in ("all", "*"):
        return set(names)
    if part.startswith("~"):
        try:
            expression = re.compile(part[1:])
        except re.error as error:
            raise UsageError(f"--limit {part}: {error}", "correct the regular expression") from error
        return {name for name in names if expression.match(name)}
    if part in names:
        return {part}
    listed = expand(part) if "[" in part and "*" not in part else None
    return set(names) & set(listed) if listed else {name for name in names if fnmatchcase(name, part)}
