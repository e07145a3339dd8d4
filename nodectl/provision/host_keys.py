"""The arguments by which Ansible's connections check host keys, and why a host's connection is refused.

OpenSSH takes the first value of an option, so ours come before all others. `ssh -G` then confirms that they are in
force, whatever the inventory, ansible.cfg and ssh_config say. The keys are those of the known_hosts files that
`nodectl exec` reads. A jump host becomes a ProxyCommand: OpenSSH starts another ssh for a ProxyJump, and passes none of
its own `-o` and `-i` to it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nodectl.errors import InventoryError
from nodectl.transport.ssh_target import ACCEPT_REMEDY, PROGRAMS, refuse_unchecked

_FIRST = ("StrictHostKeyChecking=yes", "NoHostAuthenticationForLocalhost=no", "VerifyHostKeyDNS=no")
# OpenSSH before 8.5 neither knows nor runs one
_FIRST_IF_KNOWN = "KnownHostsCommand=none"
# a host that sends nothing for a minute is given up
_LAST = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"
# what `ssh -G` prints for options that check keys
_CHECKED = {
    "stricthostkeychecking": ("true", "yes"),
    "nohostauthenticationforlocalhost": ("no", "false"),
    "verifyhostkeydns": ("false", "no"),
    "knownhostscommand": ("none",),
}
# connections without a host key, and the one that known_hosts binds
_TRANSPORTS = ("ssh", "local", "community.docker.docker", "containers.podman.podman")
# sftp and scp would start another program, or go through a jump host that gets none of our options
_OWN_WAY = re.compile(r"(^|[\s'\"])-\w*[SJ]|(?i:proxyjump)")
_LENIENT = re.compile(r"(?i)stricthostkeychecking[\s='\"]+(?!yes|true|ask)")
# of a folder: a Mac takes 104 bytes of a socket, of which Ansible's name, our folder and ssh's own ending need 45
_LONGEST = 58

# options of ssh that are followed by a value
_VALUED = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
# of the host alone; all others count for its jump host too
_OF_THE_HOST = frozenset({
    "controlmaster", "controlpath", "controlpersist", "hostkeyalias", "hostname", "port", "proxycommand", "proxyjump",
    "requesttty", "user",
})  # fmt: skip
_DEEPEST = 8  # jump hosts in a row


def checked_arguments(name: str, variables: Mapping[str, Any], connection: Any, own: str, socket: str) -> str:
    """Return the `ansible_ssh_args` that have the ssh connection of host `name` check keys; "" for another transport.

    `own` are the host's own ones, `socket` is a path that no other run uses: it is unknown what others checked before
    they left a connection open. InventoryError if keys would not be checked.
    """
    _refuse_connection(name, variables, connection)
    if connection.transport != "ssh":
        return ""
    for first in ((*_FIRST, _FIRST_IF_KNOWN), _FIRST):
        options = [*first, 'ControlPath="{}"'.format(socket.replace("%", "%%"))]
        text, words, settings = _resolved(connection, options, own)
        if settings:
            break
    else:
        raise InventoryError(f"host {name}: ssh does not take its options {shlex.join(words)}", "correct them")
    if jump := settings.get("proxyjump"):
        options.append(f"ProxyCommand={proxy_command(jump, words, lambda own: _settings(own).get('proxyjump', ''))}")
        text, words, settings = _resolved(connection, options, own)
    for keyword, values in {**_CHECKED, "controlpath": (socket, "none")}.items():
        value = settings.get(keyword, values[0])
        if value not in values:
            raise InventoryError(
                f"host {name}: {keyword} is {value}: nodectl never trusts a host unseen", ACCEPT_REMEDY
            )
    if _LENIENT.search(settings.get("proxycommand", "")):
        reason = "its ProxyCommand trusts a host key unseen"
        raise InventoryError(f"host {name}: {reason}: {settings['proxycommand']}", ACCEPT_REMEDY)
    return text


def _refuse_connection(name: str, variables: Mapping[str, Any], connection: Any) -> None:
    way = str(connection.transport)
    if way not in _TRANSPORTS:
        raise InventoryError(
            f"host {name}: ansible_connection is {way}: playbooks check host keys by ssh alone", "set it to ssh"
        )
    if way != "ssh":
        return refuse_unchecked(name, variables)
    # with what ansible.cfg and the environment say
    final = {variable: connection.get_option(f"{program}_executable") for variable, program in PROGRAMS.items()}
    refuse_unchecked(name, {**variables, **final})
    for option in ("sftp_extra_args", "scp_extra_args"):
        text = str(connection.get_option(option) or "")
        if _OWN_WAY.search(text):
            reason = f"ansible_{option} is {text!r}: files must take the way of commands"
            raise InventoryError(f"host {name}: {reason}", "move it to ansible_ssh_common_args")
    return None


def _resolved(connection: Any, options: Sequence[str], own: str) -> tuple[str, list[str], dict[str, str]]:
    """Return the text of ssh's arguments, all of the connection's, and what they and ssh_config come to.

    The last is empty if ssh refuses the arguments.
    """
    text = f"{shlex.join([word for option in options for word in ('-o', option)])} {own} {_LAST}"
    connection.set_option("ssh_args", text)
    built = [os.fsdecode(word) for word in connection._build_command("ssh", "ssh", connection.get_option("host"))]
    words = built[built.index("ssh") + 1 :]
    return text, words, _settings(words)


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    argv = ["ssh", "-G", *arguments]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    rows = (line.partition(" ") for line in done.stdout.splitlines()) if done.returncode == 0 else ()
    return {keyword: value for keyword, _, value in rows if (keyword, value) != ("proxyjump", "none")}


def proxy_command(jump: str, arguments: Sequence[str], configured: Callable[[Sequence[str]], str]) -> str:
    """Return the ProxyCommand that stands for ProxyJump `jump` in ssh's `arguments`.

    `configured` returns the jump host that ssh_config has for the jump host itself, or "".
    """
    passed = [word for option, value, words in _options(arguments) if _is_passed(option, value) for word in words]
    return _command(jump, passed, configured, 1)


def _command(jump: str, options: Sequence[str], configured: Callable[[Sequence[str]], str], depth: int) -> str:
    if depth > _DEEPEST:
        raise InventoryError(f"ProxyJump {jump}: more than {_DEEPEST} jump hosts in a row", "correct ssh_config")
    before, _, last = jump.rpartition(",")
    target = last.strip() if "://" in last else f"ssh://{last.strip()}"
    words = ["ssh", *options]
    if before := before or configured([*options, target]):
        words += ["-o", f"ProxyCommand={_command(before, options, configured, depth + 1)}"]
    # ssh replaces % in a ProxyCommand
    return " ".join([shlex.join(words).replace("%", "%%"), "-W '[%h]:%p'", shlex.quote(target).replace("%", "%%")])


def _is_passed(option: str, value: str) -> bool:
    keyword = value.strip().replace(" ", "=", 1).partition("=")[0].lower()
    return option in ("-i", "-F") or (option == "-o" and keyword not in _OF_THE_HOST)


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "--":
        word = left.pop(0)
        if word[1:2] not in _VALUED and word[2:]:  # several flags in one word
            left[:0] = [word[:2], f"-{word[2:]}"]
        elif word[1:2] not in _VALUED:
            yield word, "", [word]
        elif word[2:] or not left:
            yield word[:2], word[2:], [word]
        else:
            value = left.pop(0)
            yield word, value, [word, value]


@contextmanager
def control_sockets() -> Iterator[Path]:
    """Make a folder with a path short enough for sockets; the connections that ssh keeps there end with the block."""
    usual = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="nodectl-", dir=usual if len(usual) <= _LONGEST else "/tmp"))  # noqa: S108
    try:
        yield folder
    finally:
        for socket in filter(Path.is_socket, folder.iterdir()):
            argv = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "nodectl"]
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(argv, capture_output=True, timeout=5, check=False)
        shutil.rmtree(folder, ignore_errors=True)
