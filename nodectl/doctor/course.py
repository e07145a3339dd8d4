"""The whole look: this machine first, then the inventory, then all hosts at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.common.access import Access
from nodectl.common.counting import counted
from nodectl.doctor import machine
from nodectl.doctor.machine import here, looked
from nodectl.errors import InventoryError, NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.load import profile_dirs
from nodectl.transport.base import Transport
from nodectl.transport.inventory import read_inventory, read_settings

_READ = ("ansible_", "nodectl_")
# a complaint about such a variable may quote what it holds
_SECRET = ("pass", "secret", "token", "key")


@dataclass(slots=True)
class Fleet:
    """Hold what the inventory gave: its hosts that can be looked at, and the folders of its own profiles.

    The hosts have those of their variables that nodectl reads and that can be rendered. `refused`: the limit.
    """

    hosts: tuple[Host, ...] = ()
    profile_dirs: tuple[Path, ...] = ()
    refused: InventoryError | None = None


def read_fleet(sources: Sequence[str], access: Access, limit: str | None, fleet: Fleet) -> Iterator[Finding]:
    """Read it into `fleet`."""
    named, who = _named(sources)
    shown = f"{', '.join(named)} (by {who})" if named else "none is named"
    try:
        inventory = read_inventory(sources, access)
        if inventory.is_here and not sources:
            shown = "none is named, so it is this machine"
    except InventoryError as error:
        actual = error.message if named and named[0] in error.message else f"{shown}: {error.message}"
        yield here("inventory", Status.FAILED, f"{actual} (by {who})", expected="hosts", remedy=error.remedy)
        return
    fleet.profile_dirs = profile_dirs(inventory.sources)
    try:
        names = inventory.names(limit)
    except InventoryError as error:
        fleet.refused = error
        return
    chosen = f", of which {limit} selects {len(names)}" if limit else ""
    yield here("inventory", Status.OK, f"{shown}: {counted(len(inventory.names()), 'host')}{chosen}")
    for name in names:
        try:
            (host,) = inventory.hosts(name)
        except NodectlError as error:
            yield _fails(name, "", error)
            continue
        values, faults = _rendered(host)
        fleet.hosts += (replace(host, variables=values),)
        yield from faults


def _named(sources: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the inventories and who names them; empty where Ansible only has its own default, which is not there."""
    if sources:
        # click has them of the environment, too
        return tuple(sources), "NODECTL_INVENTORY" if os.environ.get("NODECTL_INVENTORY") in sources else "-i"
    settings = read_settings()
    origin = settings.inventory_origin.removeprefix("env: ")
    if origin == "default" and not any(Path(path).exists() for path in settings.inventory):
        return (), ""
    return settings.inventory, "Ansible's default" if origin == "default" else origin


def _rendered(host: Host) -> tuple[dict[str, object], list[Finding]]:
    values, faults = {}, []
    for name in host.variables:
        if name.startswith(_READ):
            try:
                values[name] = host.variables[name]
            except NodectlError as error:
                faults.append(_fails(host.name, name, error))
    return values, faults


def _fails(host: str, name: str, error: NodectlError) -> Finding:
    is_secret = any(part in name.lower() for part in _SECRET)
    actual = "it cannot be rendered" if is_secret else error.message.removeprefix(f"host {host}: ")
    remedy = error.remedy or f"ansible-inventory --host {host}"
    return Finding(host, "variables", Status.FAILED, name, expected="a value", actual=actual, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what to look at, as the command line names it; the transport is opened where a host is to be reached."""

    sources: Sequence[str]
    access: Access
    limit: str | None
    forks: int
    transport: Callable[[], Transport]


def examine(request: Request) -> Iterator[Finding]:
    """Every finding, fine or not; InventoryError if the inventory is fine and the limit matches nothing in it."""
    fleet = Fleet()
    yield from looked("programs", machine.programs)
    yield from looked("locale", machine.terminal)
    yield from looked("ansible", machine.ansible)
    yield from looked("data", machine.data)
    if _least_python():
        yield from looked("inventory", lambda: read_fleet(request.sources, request.access, request.limit, fleet))
    else:
        actual, remedy = "not read: Ansible does not start", "repair Ansible first"
        yield here("inventory", Status.UNKNOWN, actual, expected="hosts", remedy=remedy)
    if fleet.refused is not None:
        raise fleet.refused
    yield from looked("keys", lambda: machine.logins(fleet.hosts))
    if fleet.hosts:
        yield from looked("hosts", lambda: _hosts(request, fleet))


def _hosts(request: Request, fleet: Fleet) -> Iterator[Finding]:
    from nodectl.doctor import hosts

    yield from hosts.examine(
        fleet.hosts,
        request.transport(),
        request.forks,
        fleet.profile_dirs,
        password_given=request.access.ask_become_pass,
        least_python=_least_python(),
    )


def _least_python() -> tuple[int, ...]:
    """Return what Ansible's modules need on the hosts; empty where Ansible does not start, which was said."""
    try:
        return read_settings().least_python
    except Exception:
        return ()
