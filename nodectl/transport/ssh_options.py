"""The inventory's options for reaching a host by SSH: `ansible_ssh_*_args` and the variables beside them.

An option that would change where, as whom or how safely a host is reached is obeyed, or refused by its name. So is one
that the operator's ssh_config sets. What only steers the OpenSSH client's own session means nothing here. An option
that would let a host key pass unseen is refused in an inventory, and overruled in the operator's own ssh_config.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.errors import InventoryError
from nodectl.model.host import Host

_FLAGS = {"-J": "proxyjump", "-i": "identityfile", "-p": "port", "-l": "user", "-F": "config"}
_FIELDS = {
    "proxyjump", "proxycommand", "identityfile", "userknownhostsfile", "user", "port", "identitiesonly", "hostkeyalias",
}  # fmt: skip
# obeyed too, with the value that `ssh -G` makes of it
RULES = frozenset({
    "addressfamily", "bindaddress", "globalknownhostsfile", "hostname", "identityagent", "passwordauthentication",
    "preferredauthentications", "pubkeyauthentication",
})  # fmt: skip
OBEYED = RULES | _FIELDS
# paramiko negotiates its own: lists of /etc/ssh/ssh_config are ignored, those of an inventory or the operator refused
ALGORITHMS = frozenset({
    "ciphers", "hostkeyalgorithms", "kexalgorithms", "macs", "pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes",
    "requiredrsasize",
})  # fmt: skip
# they let a key pass that known_hosts has not; here are the values that do not
CHECKING: Mapping[str, frozenset[str]] = {
    "stricthostkeychecking": frozenset({"yes", "true", "ask"}),
    "nohostauthenticationforlocalhost": frozenset({"no", "false"}),
    "verifyhostkeydns": frozenset({"no", "false"}),
}
# they steer the OpenSSH client: how it shares, watches and ends its connections, what it forwards, runs, asks and
# prints, and what concerns certificates of hosts, GSSAPI and host-based login, with which nodectl trusts and proves
# nothing.  nodectl keeps connections of its own, so here, and in an ssh_config, they change nothing in how a host is
# reached
CLIENTS_OWN = frozenset({
    "addkeystoagent", "batchmode", "canonicaldomains", "canonicalizefallbacklocal", "canonicalizehostname",
    "canonicalizemaxdots", "canonicalizepermittedcnames", "casignaturealgorithms", "challengeresponseauthentication",
    "channeltimeout", "clearallforwardings", "compression", "connectionattempts", "connecttimeout", "controlmaster",
    "controlpath", "controlpersist", "dynamicforward", "enableescapecommandline", "enablesshkeysign", "escapechar",
    "exitonforwardfailure", "fingerprinthash", "forkafterauthentication", "forwardagent", "forwardx11",
    "forwardx11timeout", "forwardx11trusted", "gatewayports", "gssapiauthentication", "gssapiclientidentity",
    "gssapidelegatecredentials", "gssapikexalgorithms", "gssapikeyexchange", "gssapirenewalforcesrekey",
    "gssapiserveridentity", "gssapitrustdns", "hashknownhosts", "hostbasedacceptedalgorithms",
    "hostbasedauthentication", "ignoreunknown", "ipqos", "kbdinteractiveauthentication", "kbdinteractivedevices",
    "localcommand", "localforward", "loglevel", "logverbose", "numberofpasswordprompts", "obscurekeystroketiming",
    "permitlocalcommand", "permitremoteopen", "rekeylimit", "remotecommand", "remoteforward", "requesttty", "sendenv",
    "serveralivecountmax", "serveraliveinterval", "sessiontype", "setenv", "stdinnull", "streamlocalbindmask",
    "streamlocalbindunlink", "syslogfacility", "tag", "tcpkeepalive", "tunnel", "tunneldevice", "updatehostkeys",
    "versionaddendum", "visualhostkey", "warnweakcrypto", "xauthlocation",
})  # fmt: skip
_CLIENTS_FLAGS = re.compile("-[AaCKkqTtvXxY]+")  # of the same kind; letters without a value may stand together
_REMEDY = (
    "nodectl knows -J -i -p -l -F and -o ProxyJump, ProxyCommand, IdentityFile, IdentitiesOnly, UserKnownHostsFile, "
    "HostKeyAlias, User, Port, and what docs/transport.md lists beside them"
)
ACCEPT_REMEDY = "take it out; `nodectl hostkeys accept` shows the fingerprints and stores the keys"
_SEPARATOR = re.compile(r"\s*[\s=]\s*")  # a name ends at a blank or at =, whichever is first
_SWITCH = {"yes": True, "true": True, "no": False, "false": False}
# Ansible's variables for the programs that connect; another program may do as it likes with a host key
PROGRAMS = {"ansible_ssh_executable": "ssh", "ansible_sftp_executable": "sftp", "ansible_scp_executable": "scp"}


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
    # of RULES, as they were given: (lower-case keyword, value)
    rules: tuple[tuple[str, str], ...] = ()

    def then(self, other: SshOptions) -> SshOptions:
        """Return these options, and where they are silent, the other ones."""
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
            rules=self.rules + other.rules,
        )


def options_of(host: Host) -> SshOptions:
    """All that the inventory says of how to reach `host`, in the order in which Ansible hands it to ssh.

    InventoryError for what nodectl does not obey, and for what would have a host key pass unseen.
    """
    refuse_unchecked(host.name, host.variables)
    key = host.variables.get("ansible_ssh_private_key_file") or host.variables.get("ansible_private_key_file")
    variables = SshOptions(user=host.user, port=host.port, identity_files=(str(key),) if key else ())
    arguments = _arguments(host, "ansible_ssh_args").then(variables)
    for variable in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        arguments = arguments.then(_arguments(host, variable))
    return arguments


def refuse_unchecked(name: str, variables: Mapping[str, object]) -> None:
    """Raise InventoryError for a variable by which Ansible's connection would not check the host key of host `name`.

    So it does for one by which another program or way would be taken than those that nodectl checks.
    """
    for variable in filter(is_judged, variables):
        if variable.endswith("host_key_checking") and not _means(variables[variable], "yes", "true", "1", "on", "y"):
            why, remedy = "nodectl never trusts a host key unseen", ACCEPT_REMEDY
        elif variable.endswith("host_key_auto_add") and not _means(variables[variable], "no", "false", "0", "off", "n"):
            why, remedy = "nodectl never stores a host key unseen", ACCEPT_REMEDY
        elif variable in PROGRAMS and not _means(variables[variable], PROGRAMS[variable]):
            why = f"nodectl can hold only OpenSSH's {PROGRAMS[variable]} to the host keys of known_hosts"
            remedy = "take it out, and put the program that you want first on PATH"
        elif variable == "mitogen_via" and variables[variable]:
            why, remedy = "a host behind another is reached by a jump host here", "use -o ProxyJump=…"
        else:
            continue
        raise InventoryError(f"host {name}: {variable} is {variables[variable]!r}: {why}", remedy)


def is_judged(variable: str) -> bool:
    """Return whether `refuse_unchecked` looks at this variable."""
    is_switch = variable.startswith("ansible_") and variable.endswith(("host_key_checking", "host_key_auto_add"))
    return is_switch or variable in PROGRAMS or variable == "mitogen_via"


def _means(value: object, *texts: str) -> bool:
    return value is None or str(value).strip().lower() in (*texts, "")


def refuse_loose(settings: Mapping[str, Sequence[str]], source: str) -> None:
    """Raise InventoryError for the first option (keyword → values) that would accept a host key without a check."""
    for key, strict in CHECKING.items():
        for value in settings.get(key, ()):
            if value.strip('" ').lower() not in strict:
                raise InventoryError(
                    f"{source}: {key} is {value}: nodectl never trusts a host key unseen", ACCEPT_REMEDY
                )


def _arguments(host: Host, variable: str) -> SshOptions:
    text = host.variables.get(variable)
    try:
        return parse_options(str(text), variable) if text else SshOptions()
    except InventoryError as error:
        raise InventoryError(f"host {host.name}: {error.message}", error.remedy) from error


@lru_cache(maxsize=4096)
def parse_options(text: str, variable: str) -> SshOptions:
    """Return the options in `text`; InventoryError names the first that nodectl does not know, and its variable."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InventoryError(f"{variable}: {error}: {text}", "close the quote") from error
    options = SshOptions()
    for key, value in _pairs(arguments, variable):
        options = options.then(_single(key, value, variable))
    return options


def _pairs(arguments: Sequence[str], variable: str) -> Iterator[tuple[str, str]]:
    """(lower-case option name, value) of each; OpenSSH has the forms `-o "Key value"`, `-oKey=value` and `-Jhost`."""
    left = list(arguments)
    while left:
        word = left.pop(0)
        flag, value = word[:2], word[2:]
        if _CLIENTS_FLAGS.fullmatch(word):
            continue
        if not word.startswith("-"):
            raise InventoryError(
                f"{variable}: the word {word!r} belongs to no option", "quote a value that has a blank in it"
            )
        if flag not in {*_FLAGS, "-o"}:
            raise InventoryError(f"{variable}: nodectl does not obey the option {word}", _REMEDY)
        if not value:
            if not left:
                raise InventoryError(f"{variable}: {word} needs a value", _REMEDY)
            value = left.pop(0)
        yield _option(value, variable) if flag == "-o" else (_FLAGS[flag], value)


def _option(text: str, variable: str) -> tuple[str, str]:
    name, value = (*_SEPARATOR.split(text.strip(), maxsplit=1), "")[:2]
    key = name.lower()
    if key not in OBEYED | CLIENTS_OWN | CHECKING.keys():
        raise InventoryError(f"{variable}: nodectl does not obey the option {name or text}", _REMEDY)
    if not value:
        raise InventoryError(f"{variable}: -o {text} needs a value", _REMEDY)
    refuse_loose({key: [value]}, f"{variable}: -o {text}")
    return key, value


def _single(key: str, value: str, variable: str) -> SshOptions:
    if key in RULES:
        return SshOptions(rules=((key, value),))
    plain = value.strip('"')
    match key:
        case "identityfile":
            return SshOptions(identity_files=(plain,))
        case "userknownhostsfile":
            return SshOptions(known_hosts_files=tuple(shlex.split(value)))
        case "proxyjump":
            return SshOptions(proxy_jump=value)
        case "proxycommand":
            return SshOptions(proxy_command=value)
        case "user":
            return SshOptions(user=plain)
        case "config":
            return SshOptions(config_file=value)
        case "hostkeyalias":
            return SshOptions(host_key_alias=plain)
        case "identitiesonly":
            if plain.lower() not in _SWITCH:
                raise InventoryError(f"{variable}: IdentitiesOnly is '{plain}'", "give yes or no")
            return SshOptions(identities_only=_SWITCH[plain.lower()])
        case "port":
            return SshOptions(port=_port(plain, variable))
    return SshOptions()  # host key checking is always on; the rest is the OpenSSH client's own


def _port(value: str, variable: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise InventoryError(f"{variable}: port '{value}'", "give a number from 1 to 65535")
    return int(value)
