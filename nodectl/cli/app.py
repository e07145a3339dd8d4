"""The App that every command is given: global options, and the hosts and transport made from them when needed."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.terminal import emit_json, note, result
from nodectl.common.access import Access
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.transport.fanout import FORKS

if TYPE_CHECKING:
    from nodectl.health.site import SiteCheck
    from nodectl.ledger.history.store import History
    from nodectl.ledger.store import Ledger
    from nodectl.model.host import Host
    from nodectl.recordings.source import Source
    from nodectl.transport.base import Transport
    from nodectl.transport.inventory import Here
    from nodectl.transport.inventory.read import Inventory

# Ansible's own options: the fields of Access that a command line fills
ACCESS = frozenset(one.name for one in fields(Access) if one.metadata.get("option"))


@dataclass
class App:
    """Global options, resolved: flags, then NODECTL_*, then nodectl.toml next to the inventory."""

    inventory_sources: tuple[str, ...] = ()
    limit: str | None = None
    replay: str | None = None
    output: str = "table"
    forks: int = FORKS
    settings: dict[str, Any] = field(default_factory=dict)
    access: Access = field(default_factory=lambda: Access(ask=_ask_unseen))
    # of a command that puts work on hosts: which of those that are selected it is given
    narrow: Callable[[App, tuple[Host, ...]], tuple[Host, ...]] | None = None
    # what options and NODECTL_* said, which no settings overrule; of these, what was typed
    given: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)

    def take(self, name: str, value: Any, *, typed: bool = False) -> None:
        """Take a global option, wherever it stands; repeatable ones add up, of the others the last one counts."""
        if value in (None, (), False):
            return
        if isinstance(value, tuple) and name in self.typed:
            former = self.inventory_sources if name == "inventory" else getattr(self.access, name)
            value = (*former, *value)
        self.given.add(name)
        if typed:
            self.typed.add(name)
        self.set(name, value)

    def read_settings(self) -> None:
        """Read the settings beside the inventory; global options have their defaults again, if nothing gave them."""
        self.settings = _read_settings(self.inventory_sources)
        for one in fields(Access):
            if one.name in ACCESS - self.given:
                setattr(self.access, one.name, one.default)
        for name, default in (("limit", None), ("output", "table"), ("forks", FORKS)):
            if name not in self.given:
                setattr(self, name, default)

    def set(self, name: str, value: Any) -> None:
        """Set a global option."""
        if name in ACCESS:
            setattr(self.access, name, value)
        elif name == "limit" and "[" in value:
            # ClusterShell is imported only where it is needed
            from nodectl.common.nodeset import unfolded

            self.limit = unfolded(value)
        else:
            setattr(self, "inventory_sources" if name == "inventory" else name, value)

    @property
    def settings_path(self) -> Path:
        """The path of the settings beside the inventory."""
        return _settings_path(self.inventory_sources)

    def defaults_for(self, path: Sequence[str]) -> dict[str, Any]:
        """Return a command's settings by its path: `[probe.tcp]` over the plain values of `[probe]` above it."""
        table: dict[str, Any] = self.settings
        values: dict[str, Any] = {}
        for name in path:
            below = table.get(name)
            table = below if isinstance(below, dict) else {}
            values = {key: value for key, value in values.items() if not isinstance(value, dict)} | table
        return values

    def refuse_unknown_settings(self, known: Collection[str]) -> None:
        """Raise UsageError for a key of nodectl.toml that no command and no global option reads."""
        if unknown := sorted(set(self.settings) - set(known)):
            path = self.settings_path
            raise UsageError(f"{path}: nothing reads {unknown[0]}", "correct its name, or remove it")

    def named_settings(self, command: click.Command, table: Mapping[str, Any], section: str) -> dict[str, Any]:
        """Return a section by the names of the command's parameters; UsageError for a key that nothing there reads.

        A key is an option without its dashes. Plain values in the section of a group are for the commands below it.
        """
        below: dict[str, click.Command] = {}
        if isinstance(command, click.Group):
            context = click.Context(command, obj=self)
            found = {name: command.get_command(context, name) for name in command.list_commands(context)}
            below = {name: child for name, child in found.items() if child is not None}
        takers = [command, *below.values()]
        options = [(option, param) for taker in takers for param in taker.params for option in param.opts]
        names = {option.strip("-").replace("-", "_"): param.name for option, param in options}
        names |= {str(param.name): param.name for _, param in options}
        values: dict[str, Any] = {}
        for key, value in table.items():
            inner, name = below.get(key), names.get(key.replace("-", "_"))
            if isinstance(value, dict) and inner is not None:
                values[key] = self.named_settings(inner, value, f"{section}.{key}")
            elif name is not None:
                values[name] = value
            else:
                path = _settings_path(self.inventory_sources)
                hint = meant(key, [*names, *below])
                raise UsageError(f"{path}: [{section}]: nothing reads {key}", f"{hint}correct its name, or remove it")
        return values

    @property
    def json(self) -> bool:
        """The result is to be one JSON document."""
        return self.output == "json"

    def show(self, name: str, document: Mapping[str, object], text: str) -> None:
        """Print the result: the JSON document where that was asked for, else the text, if there is any."""
        if self.json:
            emit_json(name, document)
        elif text:
            result(text)

    def only_looks(self) -> None:
        """Let the command go on if no state can be kept, and say so."""
        from nodectl.common.paths import without_state

        if lost := without_state():
            note(f"warning: {lost}: nothing is kept of this run")

    @cached_property
    def inventory(self) -> Inventory | Here:
        """The inventory, read once."""
        from nodectl.transport.inventory import read_inventory

        inventory = read_inventory(self.inventory_sources, self.access)
        if inventory.is_here:
            from nodectl.payload.common.machine import describe

            named = "" if self.inventory_sources else "; no inventory given"
            note(f"this machine: {describe()}{named}")
        return inventory

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that the limit selects, which the command needs themselves; an error if there is none."""
        self.transport  # noqa: B018 - refuses --replay
        selected = self.inventory.hosts(self.limit)
        return self.narrow(self, selected) if self.narrow else selected

    @cached_property
    def source(self) -> Source:
        """Hosts and their recordings, for commands that only read: the hosts asked, or --replay's folder."""
        from nodectl.recordings.source import LiveSource, replay_source

        if self.replay is None:
            return LiveSource(self.hosts, self.transport, self.forks)
        from nodectl.recordings.folder import open_recording

        fleet = open_recording(self.replay)
        named = self.inventory.hosts(self.limit) if self.inventory_sources else None
        if named is None and self.access.given_vars:
            from nodectl.transport.inventory import read_inventory

            # the recording's names as an inventory, whose variables Ansible reads
            named = read_inventory((f"{','.join(fleet.hosts)},",), self.access).hosts(self.limit)
        return replay_source(fleet, self.limit, named)

    @property
    def fleet(self) -> str:
        """The fleet's name in histories: its inventory, for hosts of two fleets may share their names."""
        return "\n".join(self.inventory.sources)

    def history(self) -> History:
        """Open the fleet's measurements of the past; to be closed, as by `with`."""
        from nodectl.common.paths import state_dir
        from nodectl.ledger.history.database import FILE
        from nodectl.ledger.history.store import History

        return History(state_dir() / FILE, self.fleet)

    def ledger(self) -> Ledger:
        """Return what happened to the fleet's hosts and their parts; to be closed, as by `with`."""
        from nodectl.common.paths import state_dir
        from nodectl.ledger.history.database import FILE
        from nodectl.ledger.store import Ledger

        return Ledger(state_dir() / FILE, self.fleet)

    @property
    def profile_dirs(self) -> tuple[Path, ...]:
        """The fleet's own profiles: next to the inventory, or in the recording that is replayed without one."""
        from nodectl.profiles.load import profile_dirs

        if self.replay is None or self.inventory_sources:
            return profile_dirs(self.inventory.sources)
        from nodectl.recordings.folder import open_recording

        folder = open_recording(self.replay).path / "profiles"
        return (folder,) if folder.is_dir() else ()

    @cached_property
    def site_checks(self) -> tuple[SiteCheck, ...]:
        """The site's own checks, next to the inventory; a recording that is replayed without one has their answers."""
        if self.replay is not None and not self.inventory_sources:
            return ()
        from nodectl.health.site import site_checks

        return site_checks(self.inventory.sources)

    @cached_property
    def transport(self) -> Transport:
        """How the hosts are reached; closed at the end of the command."""
        from nodectl.transport.router import open_transport

        return open_transport(replay=self.replay)

    def on_event(self) -> tuple[str, ...]:
        """Return nodectl.toml's program for events, or (); UsageError if it is wrong, or others may write the file."""
        argv, path = self.settings.get("on_event", []), _settings_path(self.inventory_sources)
        is_argv = isinstance(argv, list) and all(isinstance(word, str) and "\0" not in word for word in argv)
        if not is_argv or "" in argv[:1]:
            raise UsageError(f"{path}: on_event is not a list of words", 'on_event = ["PROGRAM", "ARGUMENT"]')
        if argv:
            from nodectl.common.paths import refuse_open

            refuse_open(path, "its on_event is run")
        return tuple(argv)

    def close(self) -> None:
        """Close the transport, where one was opened."""
        if "transport" in self.__dict__:
            self.transport.close()


def _ask_unseen(prompt: str) -> str:
    if _has_terminal():
        return str(click.prompt(prompt, hide_input=True, default="", show_default=False, err=True))
    line = sys.stdin.readline()
    if not line:
        raise UsageError(
            f"{prompt}: there is no terminal to ask on, and standard input is at its end",
            "give it there (nodectl … < FILE), or have it in a vault",
        )
    return line.rstrip("\r\n")


def _has_terminal() -> bool:
    """Getpass asks on the process's terminal, wherever standard input comes from."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin.isatty()
    return True


def _read_settings(inventory: tuple[str, ...]) -> dict[str, Any]:
    if not inventory and "ANSIBLE_INVENTORY" not in os.environ and not os.access(".", os.X_OK):
        return {}  # a folder of another login, as `su` leaves one in
    from nodectl.transport.inventory import refuse_of_others

    path = _settings_path(inventory)
    try:
        refuse_of_others([path])
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error


def _settings_path(inventory: tuple[str, ...]) -> Path:
    source = Path(inventory[0]) if inventory else Path(os.environ.get("ANSIBLE_INVENTORY", "inventory/hosts.yml"))
    return (source if source.is_dir() else source.parent) / "nodectl.toml"
