"""The whole look: this machine (programs, terminal, Ansible, keys), then the inventory, then all hosts at once."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from traceback import walk_tb

from nodectl.common.access import Access
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.process import UTF_8, encoding, is_utf_8
from nodectl.errors import InventoryError, NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.load import profile_dirs
from nodectl.profiles.published import published_files
from nodectl.transport.base import Transport
from nodectl.transport.connection import credentials
from nodectl.transport.inventory import read_inventory, read_settings
from nodectl.transport.ssh_target import Target, password_of, target_of

# no host of an inventory is called so: Ansible's names have no blanks
HERE = "this machine"
_FINE = (Status.OK, Status.SKIPPED)


def here(
    check: str, status: Status, actual: str, *, expected: str = "", remedy: str = "", subject: str = ""
) -> Finding:
    """Return a finding about this machine; what is fine needs no remedy."""
    remedy = "" if status in _FINE else remedy
    return Finding(HERE, check, status, subject, expected=expected, actual=actual, remedy=remedy)


def looked(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a look; if it fails, those before it and that the rest could not be told."""
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


def programs() -> Iterator[Finding]:
    """Look for the client that resolves ssh_config and runs the playbooks' connections."""
    path = shutil.which("ssh")
    status, expected = (Status.OK, "") if path else (Status.FAILED, "OpenSSH's client")
    remedy = "install openssh-client"
    yield here("programs", status, path or "not on PATH", expected=expected, remedy=remedy, subject="ssh")


def terminal() -> Iterator[Finding]:
    """Yield whether names and texts of hosts can be shown, and Ansible, which refuses all but UTF-8, would start."""
    named = next((f"{name}={os.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    status = Status.OK if is_utf_8() else Status.WARNING
    codec = encoding()
    actual = f"{codec} ({named or 'no LANG'})" if codec else f"{named}: this machine has no such locale"
    expected = "UTF-8: nodectl's playbooks have it all the same, Ansible started by hand does not start"
    yield here("locale", status, actual, expected=expected, remedy=f"export LC_ALL={UTF_8}")


def ansible() -> Iterator[Finding]:
    """Look at Ansible's settings."""
    settings = read_settings()
    of_file = [name for name, origin in settings.origins.items() if origin == settings.file]
    shown = f"{settings.file} ({len(of_file)} settings)" if settings.file else "no ansible.cfg"
    yield here("ansible", Status.OK, f"{settings.version}; {shown}", subject="settings")
    if not settings.host_key_checking:
        origin = settings.origins.get("HOST_KEY_CHECKING", "ansible.cfg")
        actual = f"host_key_checking is off ({origin}), which nodectl overrules, and playbooks of yours obey"
        remedy = "take it out; then: nodectl hostkeys accept"
        yield here("ansible", Status.WARNING, actual, expected="keys are checked", remedy=remedy, subject="host keys")


# What logs in to the hosts: ssh_config, the agent and private keys.

_ANYBODY = Host("localhost", "localhost")
_OTHERS = 0o077


def logins(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Look at what these hosts are logged in to with; without hosts, at what any host would be offered."""
    servers = [host for host in hosts if host.connection == "ssh"]
    if hosts and not servers:
        yield here("keys", Status.SKIPPED, "no host is reached by SSH")
        return
    targets: dict[Target, Host] = {}
    complaints: dict[str, NodectlError] = {}
    for host in servers or [_ANYBODY]:
        try:
            targets.setdefault(target_of(host), host)
        except NodectlError as error:
            # OpenSSH's words for a file that it refuses are the same for every host, but for the host's name
            complaints.setdefault(error.message.replace(host.address, "HOST"), error)
    for complaint in complaints.values():
        yield here(
            "ssh_config", Status.FAILED, complaint.message, expected="files that OpenSSH reads", remedy=complaint.remedy
        )
    if targets:
        yield from _keys(targets)


def _keys(targets: dict[Target, Host]) -> Iterator[Finding]:
    seen_ways = set()
    for target, host in targets.items():
        ways = (target.identity_files, target.identities_only, target.agent)
        if ways in seen_ways or password_of(host) is not None:
            continue
        seen_ways.add(ways)
        keys, unusable = credentials(target)
        if keys:
            names = [source for source, _ in keys if source != "agent"]
            if held := len(keys) - len(names):
                names.append(f"{held} of the agent")
            yield here("keys", Status.OK, f"{counted(len(keys), 'key')} to offer: {few(names)}")
        else:
            yield _no_key(target, unusable)
    paths = dict.fromkeys(path for target in targets for path in target.identity_files)
    open_to_all = [path for path in paths if path.is_file() and path.stat().st_mode & _OTHERS]
    if open_to_all:
        actual = f"others may read {', '.join(map(str, open_to_all))}"
        remedy = shlex.join(["chmod", "600", *map(str, open_to_all)])
        yield here("keys", Status.WARNING, actual, expected="keys that OpenSSH takes", remedy=remedy, subject="mode")


def _no_key(target: Target, unusable: Sequence[str]) -> Finding:
    locked = [path for path in target.identity_files if any(why.startswith(f"{path}: encrypted") for why in unusable)]
    agent = "" if target.agent else 'eval "$(ssh-agent -s)"; '
    if locked:
        remedy = f"{agent}ssh-add {locked[0]}"
    elif any(path.exists() for path in target.identity_files):
        remedy = "name another key: --private-key FILE"
    elif len(target.identity_files) == 1:
        remedy = "name one that is there: ansible_ssh_private_key_file, or --private-key FILE"
    else:
        remedy = "ssh-keygen -t ed25519; then, for each host: ssh-copy-id USER@HOST"
    actual = f"none to offer: {few(list(unusable))}" if unusable else "none to offer"
    expected = "a key in a file or in the agent, or a password (-k)"
    return here("keys", Status.WARNING, actual, expected=expected, remedy=remedy)


def data() -> Iterator[Finding]:
    """Look at the facts of others that nodectl holds a copy of: which are older than they are taken for true."""
    for path, head in published_files():
        ends, today = head["valid_until"], date.today()
        actual = f"read on {head['read_on']}, taken for true until {ends}"
        status = Status.OK if ends >= today else Status.WARNING
        yield here("data", status, actual, subject=path.name, expected="no older", remedy="install a newer nodectl")


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
    yield from looked("programs", programs)
    yield from looked("locale", terminal)
    yield from looked("ansible", ansible)
    yield from looked("data", data)
    if _least_python():
        yield from looked("inventory", lambda: read_fleet(request.sources, request.access, request.limit, fleet))
    else:
        actual, remedy = "not read: Ansible does not start", "repair Ansible first"
        yield here("inventory", Status.UNKNOWN, actual, expected="hosts", remedy=remedy)
    if fleet.refused is not None:
        raise fleet.refused
    yield from looked("keys", lambda: logins(fleet.hosts))
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
