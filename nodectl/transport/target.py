"""Where a host really is and with what it is reached: inventory, options and ssh_config put together."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass
from pathlib import Path

from nodectl.errors import InventoryError, UnreachableError
from nodectl.model.host import Host
from nodectl.transport import ssh_config
from nodectl.transport.options import SshOptions, parse_options

_SSH_PORT = 22
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
# what may stand for %h, %r and %n in a ProxyCommand, which a shell reads
_PLAIN = re.compile(r"[A-Za-z0-9_.:@%+\[\]][A-Za-z0-9_.:@%+\[\]-]*")
_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]@]+))(?::(?P<port>\d+))?/?")


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server; `jump` is the server through which it is reached."""

    address: str
    port: int
    user: str
    key_name: str
    identity_files: tuple[Path, ...]
    identities_only: bool
    identity_agent: str | None
    known_hosts_files: tuple[Path, ...]
    proxy_command: str | None = None
    jump: Target | None = None

    @property
    def label(self) -> str:
        """user@address:port, for messages."""
        return f"{self.user}@{self.address}" + ("" if self.port == _SSH_PORT else f":{self.port}")


def options_of(host: Host) -> SshOptions:
    """All that the inventory says of how to reach `host`, in the order in which Ansible hands it to ssh."""
    key = host.variables.get("ansible_ssh_private_key_file") or host.variables.get("ansible_private_key_file")
    said = SshOptions(user=host.user, port=host.port, identity_files=(str(key),) if key else ())
    arguments = _arguments(host, "ansible_ssh_args").then(said)
    for variable in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        arguments = arguments.then(_arguments(host, variable))
    return arguments


def target_of(host: Host) -> Target:
    """The server behind `host`; InventoryError for an option that nodectl does not know."""
    return _target(host.address, options_of(host), ())


def _arguments(host: Host, variable: str) -> SshOptions:
    text = host.variables.get(variable)
    try:
        return parse_options(str(text), variable) if text else SshOptions()
    except InventoryError as error:
        raise InventoryError(f"host {host.name}: {error.message}", error.remedy) from error


def _target(address: str, said: SshOptions, trusted: tuple[Path, ...], depth: int = 0) -> Target:
    if depth > 8:
        raise UnreachableError(f"{address}: ProxyJump goes in a circle", "correct ssh_config or the inventory")
    if address.startswith("-"):
        raise InventoryError(f"'{address}' is no address", "correct ansible_host or the ProxyJump")
    found = _resolved(address, said)
    files = _paths([*found.get("userknownhostsfile", []), *found.get("globalknownhostsfile", [])])
    known_hosts = tuple(dict.fromkeys(files + trusted))
    port = int(found["port"][0])
    identities = tuple(_path(name) for name in found.get("identityfile", []))
    proxy = _first(found, "proxyjump")
    user, hostname = found["user"][0], found["hostname"][0]
    command = None if proxy else _first(found, "proxycommand")
    return Target(
        address=hostname,
        port=port,
        user=user,
        key_name=_first(found, "hostkeyalias") or hostname,
        identity_files=identities,
        identities_only=_first(found, "identitiesonly") == "yes",
        identity_agent=_first(found, "identityagent"),
        known_hosts_files=known_hosts,
        proxy_command=None if command is None else _expand(command, address, hostname, port, user),
        jump=None if proxy is None else _jump(proxy, said, identities, known_hosts, depth),
    )


def _resolved(address: str, said: SshOptions) -> dict[str, list[str]]:
    if ssh_config.asked_for(said.config_file):
        return ssh_config.resolve(address, _as_arguments(said), said.config_file)
    keys = list(said.identity_files) or [f"~/.ssh/{name}" for name in _DEFAULT_KEYS]
    return {
        "hostname": [address],
        "user": [said.user or getpass.getuser()],
        "port": [str(said.port or _SSH_PORT)],
        "identityfile": keys,
        "userknownhostsfile": [_quoted(said.known_hosts_files or _USER_KNOWN_HOSTS)],
        "globalknownhostsfile": [_quoted(_GLOBAL_KNOWN_HOSTS)],
        "proxyjump": [said.proxy_jump] if said.proxy_jump else [],
        "proxycommand": [said.proxy_command] if said.proxy_command else [],
    }


def _as_arguments(said: SshOptions) -> list[str]:
    """For `ssh -G`, which puts them together with its files by its own rules."""
    pairs = [
        ("User", said.user),
        ("Port", said.port),
        ("UserKnownHostsFile", _quoted(said.known_hosts_files)),
        ("ProxyJump", said.proxy_jump),
        ("ProxyCommand", said.proxy_command),
        *(("IdentityFile", _quoted((name,))) for name in said.identity_files),
    ]
    return [word for key, value in pairs if value for word in ("-o", f"{key}={value}")]


def _quoted(names: tuple[str, ...]) -> str:
    return " ".join(f'"{name}"' if " " in name else name for name in names)


def _first(found: dict[str, list[str]], keyword: str) -> str | None:
    value = next(iter(found.get(keyword, [])), None)
    return None if value is None or value.lower() == "none" else value


def _path(name: str) -> Path:
    return Path(name.strip('"').replace("%d", str(ssh_config.home()))).expanduser()


def _paths(values: list[str]) -> tuple[Path, ...]:
    """The files of space-separated, perhaps quoted, lists."""
    return tuple(_path(name) for value in values for name in re.findall(r'"[^"]*"|\S+', value) if name != "none")


def _jump(
    proxy: str, said: SshOptions, identities: tuple[Path, ...], known_hosts: tuple[Path, ...], depth: int
) -> Target:
    """The last of `user@a:22,b`, reached through those before it; each is also trusted by the files, and given the
    keys, that the host is."""
    before, _, spec = proxy.rpartition(",")
    match = _JUMP.fullmatch(spec.strip())
    if match is None:
        raise InventoryError(f"ProxyJump '{spec}' is not [user@]host[:port]", "correct it")
    own = SshOptions(
        user=match["user"],
        port=int(match["port"]) if match["port"] else None,
        config_file=said.config_file,
        identity_files=tuple(str(path) for path in identities),
        proxy_jump=before or None,
    )
    return _target(match["six"] or match["name"], own, known_hosts, depth + 1)


def _expand(command: str, name: str, hostname: str, port: int, user: str) -> str:
    tokens = {"%%": "%", "%h": hostname, "%n": name, "%p": str(port), "%r": user}
    for text in (name, hostname, user):
        if not _PLAIN.fullmatch(text):
            raise InventoryError(f"'{text}' may not stand in a ProxyCommand, which a shell reads", "correct the name")
    return re.sub(r"%[%hnpr]", lambda match: tokens[match.group()], command)
