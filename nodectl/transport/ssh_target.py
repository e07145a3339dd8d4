"""A host's SSH server, and what it is held to: the inventory's options and ssh_config put together.

An option of the operator's that nodectl does not obey is refused by its name: nothing of it is dropped.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nodectl.common.process import login
from nodectl.errors import InventoryError, UnreachableError
from nodectl.model.host import Host
from nodectl.transport.ssh_options import (
    ALGORITHMS,
    CHECKING,
    CLIENTS_OWN,
    OBEYED,
    SshOptions,
    options_of,
    refuse_loose,
)

_SSH_PORT = 22
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
# what may stand for %h, %r and %n in a ProxyCommand, which a shell reads
_PLAIN = re.compile(r"[A-Za-z0-9_.:@%+\[\]][A-Za-z0-9_.:@%+\[\]-]*")
_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]@]+))(?::(?P<port>\d+))?/?")
_DEEPEST = 8  # jump hosts in a row, and files that include each other

_GLOBAL_CONFIG = Path("/etc/ssh/ssh_config")
# what else may be asked for in an ssh_config without being obeyed: credentials that nodectl does not read, so that it
# has fewer to offer, and what would let a host key pass unseen, which nothing does
_OVERRULED = {"certificatefile", "pkcs11provider", "securitykeyprovider", *CHECKING}
# directives that change nothing in how nodectl reaches a host; all others are a reason to ask `ssh -G`
_HARMLESS = CLIENTS_OWN | _OVERRULED | {"host", "match"}
_SSH_G_S = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server; `jump` is the server through which it is reached.

    `methods` are the ways to log in that are not switched off, `family` is AddressFamily.
    """

    address: str
    port: int
    user: str
    key_name: str
    identity_files: tuple[Path, ...]
    identities_only: bool
    # a socket; None: that of SSH_AUTH_SOCK; empty: none is asked
    identity_agent: str | None
    known_hosts_files: tuple[Path, ...]
    methods: tuple[str, ...]
    family: str = "any"
    bind_address: str | None = None
    proxy_command: str | None = None
    jump: Target | None = None

    @property
    def label(self) -> str:
        """user@address:port, for messages."""
        return f"{self.user}@{self.address}" + ("" if self.port == _SSH_PORT else f":{self.port}")


def target_of(host: Host) -> Target:
    """Return the server behind `host`; InventoryError for an option that nodectl does not know."""
    return _target(host.address, options_of(host), ())


def password_of(host: Host) -> str | None:
    """Return the login password that the inventory has, by any of Ansible's names for it."""
    for variable in ("ansible_ssh_password", "ansible_ssh_pass", "ansible_password"):
        value = host.variables.get(variable)
        if value is not None:
            return str(value)
    return None


def _target(address: str, options: SshOptions, trusted: tuple[Path, ...], depth: int = 0) -> Target:
    if depth > _DEEPEST:
        raise UnreachableError(
            f"{address}: ProxyJump leads back to a host that was already on the way",
            "correct ssh_config or the inventory",
        )
    if address.startswith("-"):
        raise InventoryError(f"'{address}' is not an address", "correct ansible_host or the ProxyJump")
    settings = _settings(address, options)
    files = _paths([*settings.get("userknownhostsfile", []), *settings.get("globalknownhostsfile", [])])
    known_hosts = tuple(dict.fromkeys(files + trusted))
    port = int(settings["port"][0])
    identities = tuple(_path(name) for name in settings.get("identityfile", []))
    proxy_jump = _first(settings, "proxyjump")
    user, hostname = settings["user"][0], settings["hostname"][0]
    command = None if proxy_jump else _first(settings, "proxycommand")
    return Target(
        address=hostname,
        port=port,
        user=user,
        key_name=_first(settings, "hostkeyalias") or hostname,
        identity_files=identities,
        identities_only=_first(settings, "identitiesonly") == "yes",
        identity_agent=_agent(next(iter(settings.get("identityagent", [])), "SSH_AUTH_SOCK")),
        known_hosts_files=known_hosts,
        methods=_methods(settings),
        family=_first(settings, "addressfamily") or "any",
        bind_address=_first(settings, "bindaddress"),
        proxy_command=None if command is None else _expand(command, address, hostname, port, user),
        jump=None if proxy_jump is None else _jump(proxy_jump, options, identities, known_hosts, depth),
    )


def _methods(settings: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    switches = {"publickey": "pubkeyauthentication", "password": "passwordauthentication"}
    preferred = settings.get("preferredauthentications", [",".join(switches)])[0].split(",")
    on = [way for way, keyword in switches.items() if settings.get(keyword, ["yes"])[0].lower() not in ("no", "false")]
    return tuple(way for way in on if way in preferred)


def _settings(address: str, options: SshOptions) -> dict[str, list[str]]:
    """OpenSSH's settings for `address`: lower-case keyword → values; `ssh -G` is asked only where files matter."""
    if options.rules or options.config_file or config_matters():
        return _ask_ssh(address, _as_arguments(options), options.config_file)
    keys = list(options.identity_files) or [f"~/.ssh/{name}" for name in _DEFAULT_KEYS]
    return {
        "hostname": [address],
        "user": [options.user or login()],
        "port": [str(options.port or _SSH_PORT)],
        "identityfile": keys,
        "userknownhostsfile": [_quoted(options.known_hosts_files or _USER_KNOWN_HOSTS)],
        "globalknownhostsfile": [_quoted(_GLOBAL_KNOWN_HOSTS)],
        "hostkeyalias": [options.host_key_alias] if options.host_key_alias else [],
        "identitiesonly": ["yes" if options.identities_only else "no"],
        "proxyjump": [options.proxy_jump] if options.proxy_jump else [],
        "proxycommand": [options.proxy_command] if options.proxy_command else [],
    }


def _as_arguments(options: SshOptions) -> list[str]:
    """Return the options as arguments of `ssh -G`, which merges them with its files."""
    pairs = [
        ("User", options.user),
        ("Port", options.port),
        ("UserKnownHostsFile", _quoted(options.known_hosts_files)),
        ("HostKeyAlias", options.host_key_alias),
        ("IdentitiesOnly", {None: None, True: "yes", False: "no"}[options.identities_only]),
        ("ProxyJump", options.proxy_jump),
        ("ProxyCommand", options.proxy_command),
        *(("IdentityFile", _quoted((name,))) for name in options.identity_files),
        *options.rules,
    ]
    return [word for key, value in pairs if value for word in ("-o", f"{key}={value}")]


def _quoted(names: tuple[str, ...]) -> str:
    return " ".join(f'"{name}"' if " " in name else name for name in names)


def _first(settings: dict[str, list[str]], keyword: str) -> str | None:
    value = next(iter(settings.get(keyword, [])), None)
    return None if value is None or value.lower() == "none" else value


def _agent(named: str) -> str | None:
    if named == "SSH_AUTH_SOCK":
        return None
    return "" if named.lower() == "none" else named if named.startswith("$") else str(_path(named))


def _path(name: str) -> Path:
    return Path(name.strip('"').replace("%d", str(Path.home()))).expanduser()


def _paths(values: list[str]) -> tuple[Path, ...]:
    """Return the files of space-separated, perhaps quoted, lists."""
    return tuple(_path(name) for value in values for name in re.findall(r'"[^"]*"|\S+', value) if name != "none")


def _jump(
    proxy_jump: str, options: SshOptions, identities: tuple[Path, ...], known_hosts: tuple[Path, ...], depth: int
) -> Target:
    """Return the last of `user@a:22,b`, reached through those before it.

    Each is also trusted by the files, given the keys, and held to the rules, that the host is.
    """
    before, _, spec = proxy_jump.rpartition(",")
    match = _JUMP.fullmatch(spec.strip())
    if match is None:
        raise InventoryError(f"ProxyJump '{spec}' is not [user@]host[:port]", "correct it")
    jump_options = SshOptions(
        user=match["user"],
        port=int(match["port"]) if match["port"] else None,
        config_file=options.config_file,
        identity_files=tuple(str(path) for path in identities),
        proxy_jump=before or None,
        rules=tuple((key, value) for key, value in options.rules if key != "hostname"),
    )
    return _target(match["six"] or match["name"], jump_options, known_hosts, depth + 1)


def _expand(command: str, name: str, hostname: str, port: int, user: str) -> str:
    tokens = {"%%": "%", "%h": hostname, "%n": name, "%p": str(port), "%r": user}
    for text in (name, hostname, user):
        if not _PLAIN.fullmatch(text):
            raise InventoryError(f"'{text}' is not allowed in a ProxyCommand, which a shell reads", "correct the name")
    return re.sub(r"%[%hnpr]", lambda match: tokens[match.group()], command)


def config_matters() -> bool:
    """Return whether an ssh_config that counts without being named has a directive about how a host is reached.

    Only then is `ssh -G` worth a process a host.
    """
    own = _keywords(Path.home() / ".ssh" / "config")
    return not own <= _HARMLESS or not _keywords(_GLOBAL_CONFIG) <= _HARMLESS | ALGORITHMS


def config_names(keyword: str) -> bool:
    """Return whether an ssh_config that the OpenSSH client reads unasked has a directive of this lower-case keyword."""
    # the client's own home, wherever HOME is
    paths = (Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "config", _GLOBAL_CONFIG)
    return any(not _keywords(path).isdisjoint({keyword, "include"}) for path in paths)


@lru_cache(maxsize=64)
def _keywords(path: Path, depth: int = 0) -> frozenset[str]:
    """Return the keywords in a file and in those it includes; `include` where they include each other without end."""
    keywords = set[str]()
    for keyword, value in _directives(path):
        if keyword != "include" or depth > _DEEPEST:
            keywords.add(keyword)
        else:
            keywords.update(*(_keywords(included, depth + 1) for included in _included(path, value)))
    return frozenset(keywords)


def _directives(path: Path) -> Iterator[tuple[str, str]]:
    """(lower-case keyword, value) of each line; none if the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            keyword, _, value = stripped.replace("=", " ", 1).partition(" ")
            yield keyword.lower(), value.strip()


def _included(path: Path, value: str) -> Iterator[Path]:
    base = _GLOBAL_CONFIG.parent if path.is_relative_to(_GLOBAL_CONFIG.parent) else Path.home() / ".ssh"
    for word in shlex.split(value):
        pattern = Path(word).expanduser()
        pattern = pattern if pattern.is_absolute() else base / pattern
        yield from Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


def _ask_ssh(address: str, arguments: Sequence[str], config_file: str | None) -> dict[str, list[str]]:
    """Return what `ssh -G` prints for `address`: keyword → values; UnreachableError where ssh refuses its files.

    InventoryError names what the files ask for and nodectl does not obey.
    """
    settings = _printed([*(["-F", config_file] if config_file else _home_config()), *arguments], address)
    if config_file:
        refuse_loose(settings, f"{config_file}, for {address}")
    for keyword in settings.keys() - OBEYED - _HARMLESS:
        files = ("none", str(_GLOBAL_CONFIG)) if keyword in ALGORITHMS and _GLOBAL_CONFIG.exists() else ("none",)
        if settings[keyword] not in [_unset(file).get(keyword) for file in files]:
            raise InventoryError(
                f"{config_file or 'ssh_config'}, for {address}: nodectl does not obey {keyword} "
                f"({', '.join(settings[keyword])}), which would change how the host is reached",
                f"take {keyword} out for this host, or name another file with -F in ansible_ssh_common_args",
            )
    return settings


@lru_cache(maxsize=2)
def _unset(file: str = "none") -> dict[str, list[str]]:
    """Return what OpenSSH takes if the operator's file says nothing, or no file does."""
    return _printed(["-F", file], "localhost")


def _printed(arguments: Sequence[str], address: str) -> dict[str, list[str]]:
    argv = ["ssh", "-G", *arguments, "--", address]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SSH_G_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(
            f"ssh -G {address}: {error}", "install the OpenSSH client, or empty ssh_config"
        ) from error
    if done.returncode != 0:
        raise UnreachableError(f"ssh -G {address}: {done.stderr.strip()}", "correct ssh_config")
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        settings.setdefault(keyword.lower(), []).append(value)
    return settings


def _home_config() -> list[str]:
    """Name HOME's file where ssh would look in another home, that of the password file."""
    config = Path.home() / ".ssh" / "config"
    differs = Path(pwd.getpwuid(os.getuid()).pw_dir) != Path.home()
    return ["-F", str(config)] if differs and config.exists() else []
