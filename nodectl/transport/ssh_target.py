"""A host's SSH server as `ssh -G` resolves it from the inventory's options and the operator's ssh_config.

An option that matters for trust and that nodectl does not obey is refused by its name: nothing of it is dropped. So is
a variable of the inventory that would let a host key pass unseen.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from socket import gethostname

from nodectl.errors import InventoryError, UnreachableError
from nodectl.model.host import Host

ACCEPT_REMEDY = "take it out; `nodectl hostkeys accept` shows the fingerprints and stores the keys"
# Ansible's variables for the programs that connect; another program may do as it likes with a host key
PROGRAMS = {"ansible_ssh_executable": "ssh", "ansible_sftp_executable": "sftp", "ansible_scp_executable": "scp"}
_SSH_PORT = 22
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]@-][^:\[\]@]*))(?::(?P<port>\d+))?/?"
)
_DEEPEST = 8  # jump hosts in a row
_SSH_G_S = 10.0
_GLOBAL_CONFIG = Path("/etc/ssh/ssh_config")
# paramiko negotiates its own: lists of /etc/ssh/ssh_config are ignored, those of an inventory or the operator refused
_ALGORITHMS = (
    "ciphers", "hostkeyalgorithms", "kexalgorithms", "macs", "pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes",
    "requiredrsasize",
)  # fmt: skip
_REFUSED = (
    "addressfamily", "bindaddress", "bindinterface", "checkhostip", "knownhostscommand", "preferredauthentications",
    "proxyusefdpass", "pubkeyauthentication", "refuseconnection", "revokedhostkeys",
)  # fmt: skip
# they let a key pass that known_hosts has not; here are the values that do not
_CHECKING = {
    "stricthostkeychecking": ("yes", "true", "ask"),
    "nohostauthenticationforlocalhost": ("no", "false"),
    "verifyhostkeydns": ("no", "false"),
}
# the last argument of `ssh -G`: what follows a word that belongs to no option is a command to ssh, and is not read
_LAST = ("xauthlocation", "nodectl")

_Settings = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Target:
    """One SSH server; `agent` is a socket or empty, `jump` is the server through which it is reached.

    known_hosts has its keys under `key_name` and `key_port`; the port of an alias is never written there.
    """

    address: str
    port: int
    user: str
    key_name: str
    key_port: int
    identity_files: tuple[Path, ...]
    identities_only: bool
    agent: str
    known_hosts_files: tuple[Path, ...]
    allows_password: bool
    proxy_command: str | None = None
    jump: Target | None = None

    @property
    def label(self) -> str:
        """user@address:port, for messages."""
        return f"{self.user}@{self.address}" + ("" if self.port == _SSH_PORT else f":{self.port}")


def target_of(host: Host) -> Target:
    """Return the server behind `host`; InventoryError for an option that nodectl does not obey."""
    if host.address.startswith("-"):
        raise InventoryError(f"'{host.address}' is not an address", "correct ansible_host")
    return _target(host.address, ssh_arguments(host))


def refuse_options(host: Host) -> None:
    """Raise InventoryError if the inventory's options for `host` are refused, whatever ssh_config says."""
    try:
        settings = _defaults(("-F", "none", *ssh_arguments(host)))
    except InventoryError as error:
        raise InventoryError(f"host {host.name}: {error.message}", error.remedy) from error
    _refuse(f"host {host.name}", settings, partial(_defaults, ("-F", "none")))


def ssh_arguments(host: Host) -> tuple[str, ...]:
    """Return the arguments that Ansible would give to ssh for `host`, in its order: the first value counts.

    InventoryError for a variable that would let a host key pass unseen.
    """
    refuse_unchecked(host.name, host.variables)
    key = host.variables.get("ansible_ssh_private_key_file") or host.variables.get("ansible_private_key_file")
    # ssh drops a file that does not exist from -i
    own = [("Port", host.port), ("IdentityFile", f'"{key}"' if key else None), ("User", host.user)]
    return (
        *_words(host, "ansible_ssh_args"),
        *(word for option, value in own if value for word in ("-o", f"{option}={value}")),
        *_words(host, "ansible_ssh_common_args"),
        *_words(host, "ansible_ssh_extra_args"),
    )


def _words(host: Host, variable: str) -> list[str]:
    text = str(host.variables.get(variable) or "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InventoryError(f"host {host.name}: {variable}: {error}: {text}", "close the quote") from error


def refuse_unchecked(name: str, variables: Mapping[str, object]) -> None:
    """Raise InventoryError for a variable by which Ansible's connection would not check the host key of host `name`.

    Also raise for variables that select another SSH program or connection plug-in.
    """
    for variable in filter(is_judged, variables):
        if variable.endswith("host_key_checking") and not _means(variables[variable], "yes", "true", "1", "on", "y"):
            why, remedy = "nodectl never trusts a host key unseen", ACCEPT_REMEDY
        elif variable.endswith("host_key_auto_add") and not _means(variables[variable], "no", "false", "0", "off", "n"):
            why, remedy = "nodectl never stores a host key unseen", ACCEPT_REMEDY
        elif variable in PROGRAMS and not _means(variables[variable], PROGRAMS[variable]):
            why = f"nodectl can hold only OpenSSH's {PROGRAMS[variable]} to the host keys of known_hosts"
            remedy = "take it out, and put the program that you want first on PATH"
        else:
            continue
        raise InventoryError(f"host {name}: {variable} is {variables[variable]!r}: {why}", remedy)


def is_judged(variable: str) -> bool:
    """Return whether `refuse_unchecked` looks at this variable."""
    is_switch = variable.startswith("ansible_") and variable.endswith(("host_key_checking", "host_key_auto_add"))
    return is_switch or variable in PROGRAMS


def _means(value: object, *texts: str) -> bool:
    return value is None or str(value).strip().lower() in (*texts, "")


def password_of(host: Host) -> str | None:
    """Return the login password that the inventory has, by any of Ansible's names for it."""
    for variable in ("ansible_ssh_password", "ansible_ssh_pass", "ansible_password"):
        value = host.variables.get(variable)
        if value is not None:
            return str(value)
    return None


def _target(name: str, arguments: Sequence[str], of_host: Target | None = None, depth: int = 0) -> Target:
    """Return the server of this name; a jump host is also trusted and given keys by the files of its host."""
    if depth > _DEEPEST:
        raise UnreachableError(
            f"{name}: ProxyJump leads back to a host that was already on the way", "correct ssh_config or the inventory"
        )
    settings = _ask_ssh(name, arguments)
    _refuse(name, settings, partial(_ask_ssh, name, ()))
    address, port, user = (settings[keyword][0] for keyword in ("hostname", "port", "user"))
    alias, here = _first(settings, "hostkeyalias"), pwd.getpwuid(os.getuid())
    tokens = {"%%": "%", "%d": str(Path.home()), "%h": address, "%i": str(here.pw_uid), "%k": alias or name,
              "%L": gethostname().partition(".")[0], "%l": gethostname(), "%n": name, "%p": port, "%r": user,
              "%u": here.pw_name}  # fmt: skip
    path = partial(_path, name, tokens)
    known_hosts = [
        path(text)
        for keyword in ("userknownhostsfile", "globalknownhostsfile")
        for text in _files(name, settings, keyword)
    ]
    identities = [path(text) for text in settings.get("identityfile", [])]
    agent = settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    target = Target(
        address=address,
        port=int(port),
        user=user,
        key_name=alias or address,
        key_port=_SSH_PORT if alias else int(port),
        identity_files=tuple(dict.fromkeys([*(of_host.identity_files if of_host else ()), *identities])),
        identities_only=_first(settings, "identitiesonly") == "yes",
        agent=os.environ.get(agent, "") if agent == "SSH_AUTH_SOCK" else str(path(agent)) if agent != "none" else "",
        known_hosts_files=tuple(dict.fromkeys([*known_hosts, *(of_host.known_hosts_files if of_host else ())])),
        allows_password=_first(settings, "passwordauthentication") != "no",
    )
    if chain := _first(settings, "proxyjump"):
        name, further = _jump(chain, arguments)
        return replace(target, jump=_target(name, further, target, depth + 1))
    command = _first(settings, "proxycommand")
    if command is not None:  # a shell takes the words as they are
        command = re.sub("%[%hnpr]", lambda match: shlex.quote(tokens[match.group()]), command)
    return replace(target, proxy_command=command)


def _jump(chain: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the last jump host's name, and its arguments: the jump hosts before it and the same -F."""
    before, _, last = chain.rpartition(",")
    jump = _JUMP.fullmatch(last.strip())
    if jump is None:
        raise InventoryError(f"ProxyJump '{last}' is not [user@]host[:port]", "correct it")
    own = [("-J", before), ("-l", jump["user"]), ("-p", jump["port"])]
    places = [place for place, word in enumerate(arguments) if word.startswith("-F")][-1:]
    files = [word for at in places for word in arguments[at : at + (2 if arguments[at] == "-F" else 1)]]
    return jump["six"] or jump["name"], [*files, *(word for flag, value in own if value for word in (flag, value))]


def _first(settings: _Settings, keyword: str) -> str | None:
    value = next(iter(settings.get(keyword, ())), "none")
    return None if value.lower() == "none" else value


def _path(name: str, tokens: Mapping[str, str], text: str) -> Path:
    """Return a path of ssh_config with its tokens and variables replaced, which `ssh -G` leaves as they are."""

    def expanded(match: re.Match[str]) -> str:
        if match[0] not in tokens:
            raise InventoryError(f"{name}: nodectl does not expand {match[0]} in {text}", "write the path without it")
        return tokens[match[0]]

    return Path(re.sub("%.", expanded, os.path.expandvars(text.strip('"')))).expanduser()


def _files(name: str, settings: _Settings, keyword: str) -> list[str]:
    """Return the paths of an option that has many; `ssh -G` prints them without their quotes."""
    home = rf"(?<!\S){re.escape(str(Path.home()))}/"
    first, *others = re.findall(r'"[^"]*"|\S+', re.sub(home, "~/", settings[keyword][0])) or ["none"]
    if rest := [text for text in others if text[0] not in '/~"%$' and text != "none"]:
        raise InventoryError(
            f"{name}: {keyword} has {rest[0]} after a blank: nodectl reads no path with a blank in it",
            "name a file whose path has none, or for two files absolute paths",
        )
    return [text for text in (first, *others) if text != "none"]


def _refuse(name: str, settings: _Settings, own: Callable[[], _Settings]) -> None:
    """Raise InventoryError for what the inventory or the operator's files ask for and nodectl does not obey.

    `own` returns the operator's own ssh_config: what it says of checks is overruled.
    """
    for keyword in (*_REFUSED, *_ALGORITHMS):
        files = ("none", str(_GLOBAL_CONFIG)) if keyword in _ALGORITHMS and _GLOBAL_CONFIG.exists() else ("none",)
        if settings.get(keyword) not in [_defaults(("-F", file)).get(keyword) for file in files]:
            raise InventoryError(
                f"{name}: nodectl does not obey {keyword} ({', '.join(settings.get(keyword, ['none']))}), which would "
                "change how the host is reached",
                f"take {keyword} out of ansible_ssh_*_args, or of ssh_config for this host (-F names another file)",
            )
    for keyword, strict in _CHECKING.items():
        loose = [value for value in settings.get(keyword, ()) if value not in strict]
        if loose and own().get(keyword) != settings[keyword]:
            raise InventoryError(
                f"{name}: {keyword} is {loose[0]}: nodectl never trusts a host key unseen", ACCEPT_REMEDY
            )


@lru_cache(maxsize=4096)
def _defaults(arguments: tuple[str, ...]) -> _Settings:
    return _ask_ssh("localhost", arguments)


def _ask_ssh(destination: str, arguments: Sequence[str]) -> _Settings:
    config = Path.home() / ".ssh" / "config"
    # ssh itself looks in the home of the password file
    is_other_home = Path(pwd.getpwuid(os.getuid()).pw_dir) != Path.home()
    own = ["-F", str(config)] if is_other_home and config.exists() else []
    argv = ["ssh", "-G", *own, destination, *arguments, "-o", "=".join(_LAST)]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SSH_G_S, check=False
        )
    except ValueError as error:
        raise InventoryError(f"ssh -G {destination!r}: {error}", "correct ansible_ssh_*_args") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"ssh -G {destination}: {error}", "install the OpenSSH client") from error
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())
        raise InventoryError(f"ssh -G {destination}: {reason}", "correct ansible_ssh_*_args or ssh_config")
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        settings.setdefault(keyword.lower(), []).append(value)
    if settings.get(_LAST[0]) != [_LAST[1]]:
        raise InventoryError(
            f"{destination}: a word of {shlex.join(arguments)} belongs to no option", "quote a value with a blank in it"
        )
    return settings
