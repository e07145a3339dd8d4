"""The whole look: this machine first, then the inventory, then all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodectl.common.access import Access
from nodectl.doctor import login, machine, settings
from nodectl.doctor.finding import here, looked
from nodectl.doctor.fleet import Fleet, read_fleet
from nodectl.inventory import read_settings
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.transport.base import Transport


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what to look at, as the command line names it; the transport is opened where a host is to be reached."""

    sources: Sequence[str]
    access: Access
    limit: str | None
    forks: int
    transport: Callable[[], Transport]


def examine(request: Request) -> Iterator[Finding]:
    """Every finding, fine or not; InventoryError where the inventory is fine and the limit matches nothing in it."""
    found = Fleet()
    yield from looked("python", machine.installation)
    yield from looked("programs", machine.programs)
    yield from looked("programs", settings.program)
    yield from looked("folders", machine.places)
    yield from looked("locale", machine.terminal)
    yield from looked("ansible", settings.ansible)
    if _least_python():
        yield from looked("inventory", lambda: read_fleet(request.sources, request.access, request.limit, found))
    else:
        actual, remedy = "not read: Ansible does not start", "repair Ansible first"
        yield here("inventory", Status.UNKNOWN, actual, expected="hosts", remedy=remedy)
    if found.refused is not None:
        raise found.refused
    yield from looked("keys", lambda: login.logins(found.hosts))
    if found.hosts:
        yield from looked("hosts", lambda: _hosts(request, found))


def _hosts(request: Request, found: Fleet) -> Iterator[Finding]:
    from nodectl.doctor import hosts

    yield from hosts.examine(
        found.hosts,
        request.transport(),
        request.forks,
        found.profile_dirs,
        password_given=request.access.ask_become_pass,
        least_python=_least_python(),
    )


def _least_python() -> tuple[int, ...]:
    """Return what Ansible's modules need on the hosts; empty where Ansible does not start, which was said."""
    try:
        return read_settings().least_python
    except Exception:
        return ()
