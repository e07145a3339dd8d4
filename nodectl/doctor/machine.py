"""The operator's machine: programs, terminal, Ansible, and what logs in to the hosts."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from traceback import walk_tb

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.process import UTF_8, encoding, is_utf_8
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.published import published_files
from nodectl.transport.connection import credentials
from nodectl.transport.inventory import read_settings
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
