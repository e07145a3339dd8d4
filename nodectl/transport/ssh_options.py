"""What the inventory says of how to reach a host by SSH: `ansible_ssh_*_args` and the variables beside them.

An OpenSSH option that nodectl does not honour is named in an error, never dropped.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.errors import InventoryError
from nodectl.model.host import Host

_FLAGS = {"-J": "proxyjump", "-i": "identityfile", "-p": "port", "-l": "user", "-F": "config"}
_KNOWN = {"proxyjump", "proxycommand", "identityfile", "userknownhostsfile", "user", "port"}
# they steer how the OpenSSH client shares and watches its connections; nodectl keeps its own, so here they mean nothing
_SHARING = {"controlmaster", "controlpersist", "controlpath", "serveraliveinterval", "serveralivecountmax"}
_REMEDY = "nodectl knows -J -i -p -l -F and -o ProxyJump, ProxyCommand, IdentityFile, UserKnownHostsFile, User, Port"
_CHECKING = "stricthostkeychecking"


@dataclass(frozen=True, slots=True)
class SshOptions:
    """Options of an OpenSSH command line; as in OpenSSH the first value stands, identity files add up."""

    user: str | None = None
    port: int | None = None
    identity_files: tuple[str, ...] = ()
    known_hosts_files: tuple[str, ...] = ()
    proxy_jump: str | None = None
    proxy_command: str | None = None
    config_file: str | None = None

    def then(self, other: SshOptions) -> SshOptions:
        """These options, and where they are silent, the other ones."""
        proxied = self.proxy_jump or self.proxy_command
        return SshOptions(
            user=self.user or other.user,
            port=self.port or other.port,
            identity_files=self.identity_files + other.identity_files,
            known_hosts_files=self.known_hosts_files or other.known_hosts_files,
            proxy_jump=self.proxy_jump if proxied else other.proxy_jump,
            proxy_command=self.proxy_command if proxied else other.proxy_command,
            config_file=self.config_file or other.config_file,
        )


def options_of(host: Host) -> SshOptions:
    """All that the inventory says of how to reach `host`, in the order in which Ansible hands it to ssh."""
    key = host.variables.get("ansible_ssh_private_key_file") or host.variables.get("ansible_private_key_file")
    variables = SshOptions(user=host.user, port=host.port, identity_files=(str(key),) if key else ())
    arguments = _arguments(host, "ansible_ssh_args").then(variables)
    for variable in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        arguments = arguments.then(_arguments(host, variable))
    return arguments


def _arguments(host: Host, variable: str) -> SshOptions:
    text = host.variables.get(variable)
    try:
        return parse_options(str(text), variable) if text else SshOptions()
    except InventoryError as error:
        raise InventoryError(f"host {host.name}: {error.message}", error.remedy) from error


@lru_cache(maxsize=4096)
def parse_options(text: str, variable: str) -> SshOptions:
    """The options in `text`; InventoryError names the first that nodectl does not know, and the variable it is in."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InventoryError(f"{variable}: {error}: {text}", "close the quote") from error
    options = SshOptions()
    for key, value in _pairs(words, variable):
        options = options.then(_single(key, value, variable))
    return options


def _pairs(words: Sequence[str], variable: str) -> Iterator[tuple[str, str]]:
    """(lower-case option name, value) of each; OpenSSH has the forms `-o "Key value"`, `-oKey=value` and `-Jhost`."""
    left = list(words)
    while left:
        word = left.pop(0)
        flag, value = word[:2], word[2:]
        if flag == "-C" and not value and variable == "ansible_ssh_args":
            continue
        if flag not in {*_FLAGS, "-o"}:
            raise InventoryError(f"{variable}: nodectl does not know the option {word}", _REMEDY)
        if not value:
            if not left:
                raise InventoryError(f"{variable}: {word} needs a value", _REMEDY)
            value = left.pop(0)
        yield _option(value, variable) if flag == "-o" else (_FLAGS[flag], value)


def _option(text: str, variable: str) -> tuple[str, str]:
    name, separator, value = text.strip().partition("=") if "=" in text else text.strip().partition(" ")
    key, value = name.strip().lower(), value.strip()
    if key == _CHECKING and value.lower() in {"no", "off", "accept-new"}:
        raise InventoryError(
            f"{variable}: -o {text}: nodectl never trusts a host key unseen",
            "take the option out; `nodectl hostkeys accept` shows the fingerprints and stores the keys",
        )
    sharing = key in _SHARING and variable == "ansible_ssh_args"
    if key not in _KNOWN and not sharing and key != _CHECKING:
        raise InventoryError(f"{variable}: nodectl does not know the option {name.strip() or text}", _REMEDY)
    if not separator or not value:
        raise InventoryError(f"{variable}: -o {text} needs a value", _REMEDY)
    return key, value


def _single(key: str, value: str, variable: str) -> SshOptions:
    match key:
        case "identityfile":
            return SshOptions(identity_files=(value.strip('"'),))
        case "userknownhostsfile":
            return SshOptions(known_hosts_files=tuple(shlex.split(value)))
        case "proxyjump":
            return SshOptions(proxy_jump=value)
        case "proxycommand":
            return SshOptions(proxy_command=value)
        case "user":
            return SshOptions(user=value.strip('"'))
        case "config":
            return SshOptions(config_file=value)
        case "port":
            return SshOptions(port=_port(value, variable))
    return SshOptions()  # host key checking is always on; connection sharing is not ours


def _port(value: str, variable: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise InventoryError(f"{variable}: port '{value}'", "give a number from 1 to 65535")
    return int(value)
