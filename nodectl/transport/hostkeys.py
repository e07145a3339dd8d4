"""Asks SSH servers for their host keys, compares these with known_hosts, and writes accepted ones there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from nodectl.errors import UnreachableError
from nodectl.model.host import Host
from nodectl.transport.connection import Connections, KnownHostsPolicy
from nodectl.transport.fanout import fan_out
from nodectl.transport.known_hosts import Standing, fingerprint, standing, store, written
from nodectl.transport.ssh_target import Target, target_of


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """A server's key; `wire` is the form that known_hosts stores."""

    kind: str
    wire: bytes
    standing: Standing

    @property
    def fingerprint(self) -> str:
        """SHA256:…, as ssh-keygen prints it."""
        return fingerprint(self.wire)


@dataclass(frozen=True, slots=True)
class Server:
    """A host of the inventory, or a jump host on the way to one (named by its address)."""

    name: str
    target: Target

    @property
    def known_hosts_file(self) -> Path:
        """The known_hosts file into which its keys are accepted."""
        return self.target.known_hosts_files[0]


@dataclass(frozen=True, slots=True)
class Survey:
    """The key that a server shows; none, and an `error`, if it could not be asked."""

    server: Server
    key: OfferedKey | None
    error: str = ""
    remedy: str = ""


def servers(hosts: Sequence[Host]) -> list[list[Server]]:
    """Return the hosts and the jump hosts on the way to them, those first through which others are reached."""
    names: dict[Target, tuple[int, str]] = {}
    for host in hosts:
        if host.connection == "ssh":
            target = target_of(host)
            names[target] = (_hops(target), host.name)
            while target.jump is not None:
                target = target.jump
                names.setdefault(target, (_hops(target), target.label))
    depths = sorted({hops for hops, _ in names.values()})
    return [[Server(name, target) for target, (hops, name) in names.items() if hops == depth] for depth in depths]


def survey(asked: Sequence[Server], forks: int) -> list[Survey]:
    """Ask each server for its key, in the order given; jump hosts are checked."""
    connections = Connections()
    try:
        surveys = dict(fan_out(asked, lambda server: _ask(connections, server), forks))
    finally:
        connections.close()
    return [surveys[server] for server in asked]


def accept(surveys: Sequence[Survey]) -> None:
    """Write the shown keys into the servers' known_hosts files, in place of what was there for the same names."""
    for item in surveys:
        target = item.server.target
        if item.key is not None:
            name = written(target.key_name, target.key_port)
            store(item.server.known_hosts_file, name, item.key.kind, item.key.wire)


def _hops(target: Target) -> int:
    return 0 if target.jump is None else 1 + _hops(target.jump)


class _Shown(Exception):  # noqa: N818 - no error
    def __init__(self, key: OfferedKey) -> None:
        self.key = key


class _ShowPolicy(KnownHostsPolicy):
    def missing_host_key(  # type: ignore[override]
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        wire = key.asbytes()
        raise _Shown(OfferedKey(key.get_name(), wire, standing(self.entries, wire)))


def _ask(connections: Connections, server: Server) -> Survey:
    connection = connections.to(server.target.address, server.target)
    connection._set(policy=_ShowPolicy)
    try:
        connection.open()
    except _Shown as shown:
        return Survey(server, shown.key)
    except UnreachableError as error:
        return Survey(server, None, error.message, error.remedy)
    raise AssertionError("a key was accepted that is only to be shown")
