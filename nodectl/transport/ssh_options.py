"""What the inventory says of how to reach a host by SSH: `ansible_ssh_*_args` and the variables beside them.

An OpenSSH option that would change where, as whom or how safely a host is reached, and that nodectl does not honour, is
named in an error, never dropped. What only steers the OpenSSH client's own session means nothing here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.errors import InventoryError
from nodectl.model.host import Host

_FLAGS = {"-J": "proxyjump", "-i": "identityfile", "-p": "port", "-l": "user", "-F": "config"}
_KNOWN = {
    "proxyjump", "proxycommand", "identityfile", "userknownhostsfile", "user", "port", "identitiesonly", "hostkeyalias",
}  # fmt: skip
# they steer the OpenSSH client: how it shares, watches and ends its connections, in which order it offers what it may
# log in with, what it forwards and prints.  nodectl keeps connections of its own, so here, and in an ssh_config, they
# change nothing in how a host is reached
CLIENTS_OWN = frozenset({
    "addkeystoagent", "batchmode", "challengeresponseauthentication", "checkhostip", "clearallforwardings",
    "compression", "connectionattempts", "connecttimeout", "controlmaster", "controlpath", "controlpersist",
    "escapechar", "exitonforwardfailure", "forwardagent", "forwardx11", "forwardx11timeout", "forwardx11trusted",
    "gssapiauthentication", "gssapidelegatecredentials", "hashknownhosts", "ipqos", "kbdinteractiveauthentication",
    "loglevel", "numberofpasswordprompts", "passwordauthentication", "permitlocalcommand", "preferredauthentications",
    "pubkeyauthentication", "rekeylimit", "requesttty", "sendenv", "serveralivecountmax", "serveraliveinterval",
    "tcpkeepalive", "updatehostkeys", "verifyhostkeydns", "visualhostkey",
})  # fmt: skip
_CLIENTS_FLAGS = re.compile("-[AaCKkqTtvXxY]+")  # of the same kind; letters without a value may stand together
_REMEDY = (
    "nodectl knows -J -i -p -l -F and -o ProxyJump, ProxyCommand, IdentityFile, IdentitiesOnly, UserKnownHostsFile, "
    "HostKeyAlias, User, Port"
)
_CHECKING = "stricthostkeychecking"
_SEPARATOR = re.compile(r"\s*[\s=]\s*")  # a name ends at a blank or at =, whichever is first


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
    identities_only: bool | None = None
    host_key_alias: str | None = None

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
            identities_only=other.identities_only if self.identities_only is None else self.identities_only,
            host_key_alias=self.host_key_alias or other.host_key_alias,
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
        if _CLIENTS_FLAGS.fullmatch(word):
            continue
        if not word.startswith("-"):
            raise InventoryError(f"{variable}: {word!r} belongs to no option", "quote a value that has a blank in it")
        if flag not in {*_FLAGS, "-o"}:
            raise InventoryError(f"{variable}: nodectl does not know the option {word}", _REMEDY)
        if not value:
            if not left:
                raise InventoryError(f"{variable}: {word} needs a value", _REMEDY)
            value = left.pop(0)
        yield _option(value, variable) if flag == "-o" else (_FLAGS[flag], value)


def _option(text: str, variable: str) -> tuple[str, str]:
    name, value = (*_SEPARATOR.split(text.strip(), maxsplit=1), "")[:2]
    key = name.lower()
    if key == _CHECKING and value.lower() in {"no", "off", "accept-new"}:
        raise InventoryError(
            f"{variable}: -o {text}: nodectl never trusts a host key unseen",
            "take the option out; `nodectl hostkeys accept` shows the fingerprints and stores the keys",
        )
    if key not in _KNOWN | CLIENTS_OWN and key != _CHECKING:
        raise InventoryError(f"{variable}: nodectl does not know the option {name or text}", _REMEDY)
    if not value:
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
        case "hostkeyalias":
            return SshOptions(host_key_alias=value.strip('"'))
        case "identitiesonly":
            return SshOptions(identities_only=value.lower() == "yes")
        case "port":
            return SshOptions(port=_port(value, variable))
    return SshOptions()  # host key checking is always on; the rest is the OpenSSH client's own


def _port(value: str, variable: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise InventoryError(f"{variable}: port '{value}'", "give a number from 1 to 65535")
    return int(value)
