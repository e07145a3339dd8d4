"""What logs in to the hosts: ssh_config, the agent, private keys, and known_hosts."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.doctor.finding import here
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.transport.known_hosts import known_hosts
from nodectl.transport.ssh_client import SshClient
from nodectl.transport.ssh_target import Target, password_of, target_of

_ANYBODY = Host("localhost", "localhost")
_AGENT_S = 2.0
_OTHERS = 0o077


def logins(hosts: Sequence[Host]) -> Iterator[Finding]:
    """What these hosts are logged in to with; of a host that the inventory says nothing of, where there are none."""
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
    for said in complaints.values():
        yield here("ssh_config", Status.FAILED, said.message, expected="files that OpenSSH reads", remedy=said.remedy)
    if targets:
        yield from _keys(targets)
        yield from _known_hosts(list(targets), is_fleet=bool(servers))


def _keys(targets: dict[Target, Host]) -> Iterator[Finding]:
    """A finding for each set of keys that a host would be offered."""
    yield from _agents(targets)
    told = set()
    with closing(SshClient()) as client:
        for target, host in targets.items():
            ways = (target.identity_files, target.identities_only, target.identity_agent)
            if ways in told or password_of(host) is not None:
                continue
            told.add(ways)
            offered, unusable = client.credentials(target)
            if offered:
                yield here("keys", Status.OK, f"{counted(len(offered), 'key')} to offer: {few(_from(offered))}")
            else:
                yield _no_key(target, unusable)
    paths = dict.fromkeys(path for target in targets for path in target.identity_files)
    open_to_all = [path for path in paths if path.is_file() and path.stat().st_mode & _OTHERS]
    if open_to_all:
        actual = f"others may read {', '.join(map(str, open_to_all))}"
        remedy = shlex.join(["chmod", "600", *map(str, open_to_all)])
        yield here("keys", Status.WARNING, actual, expected="keys that OpenSSH takes", remedy=remedy, subject="mode")


def _from(sources: Sequence[str]) -> list[str]:
    """Files by their names, and how many keys the agent has."""
    held = sources.count("agent")
    return [source for source in sources if source != "agent"] + ([f"{held} of the agent"] if held else [])


def _no_key(target: Target, unusable: Sequence[str]) -> Finding:
    locked = [path for path in target.identity_files if any(why.startswith(f"{path}: encrypted") for why in unusable)]
    agent = "" if _agent_of(target) else 'eval "$(ssh-agent -s)"; '
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


def _agents(targets: dict[Target, Host]) -> Iterator[Finding]:
    """Yield whether the agents that are named answer; who has none needs none."""
    agents = dict.fromkeys(agent for agent in map(_agent_of, targets) if agent)
    if not agents:
        yield here("agent", Status.SKIPPED, "none is named (SSH_AUTH_SOCK)")
    for agent in agents:
        why = _silent(agent)
        if why:
            remedy = 'unset SSH_AUTH_SOCK, or start one: eval "$(ssh-agent -s)"; ssh-add'
            yield here("agent", Status.WARNING, f"{agent}: {why}", expected="an agent that answers", remedy=remedy)
        else:
            yield here("agent", Status.OK, f"answers at {agent}")


def _agent_of(target: Target) -> str:
    named = target.identity_agent
    return os.environ.get("SSH_AUTH_SOCK", "") if named is None else os.path.expandvars(named)


def _silent(agent: str) -> str:
    """Why nobody listens at the socket."""
    with socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(_AGENT_S)
        try:
            ours.connect(agent)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _known_hosts(targets: Sequence[Target], *, is_fleet: bool) -> Iterator[Finding]:
    """Which files there are, and how many of the hosts they name; whether a host shows that key, it says itself."""
    files = dict.fromkeys(path for target in targets for path in target.known_hosts_files)
    unreadable = [path for path in files if path.exists() and not os.access(path, os.R_OK)]
    for path in unreadable:
        remedy = f"sudo chown {os.geteuid()} {path}; chmod 600 {path}"
        yield here("known_hosts", Status.FAILED, f"{path} cannot be read", expected="readable", remedy=remedy)
    there = [path for path in files if path not in unreadable and path.is_file()]
    if is_fleet:
        named = [one for one in targets if known_hosts(one.known_hosts_files).entries(one.key_name, one.port)]
        where = f" in {_shown(there)}" if there else ", for there is no such file"
        actual = f"{len(named)} of {counted(len(targets), 'address', 'addresses')} named{where}"
        # a host that shows a key says so itself: this is for those that do not answer
        remedy = "compare the fingerprints with the hosts' own, then: nodectl hostkeys accept"
        status = Status.OK if len(named) == len(targets) else Status.WARNING
        yield here("known_hosts", status, actual, expected="every address", remedy=remedy)
    elif not unreadable:
        yield here("known_hosts", Status.OK, _shown(there) or "none yet")


def _shown(paths: Sequence[Path]) -> str:
    return few([str(path) for path in paths])
