"""Asks SSH servers for their host keys, compares these with known_hosts, and writes accepted ones there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.errors import UnreachableError
from nodectl.model.host import Host
from nodectl.transport.fanout import fan_out
from nodectl.transport.known_hosts import Standing, fingerprint, known_hosts, store, written
from nodectl.transport.ssh_client import ALGORITHMS, SshClient
from nodectl.transport.ssh_target import Target, target_of


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """One key of a server; `wire` is the form that known_hosts stores.

    A key may be unknown beside a known one of another kind; that is harmless.
    """

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
    """The keys that a server offers; none, and an `error`, if it could not be asked."""

    server: Server
    keys: tuple[OfferedKey, ...]
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
    """Ask each server for its keys, in the order given."""
    client = SshClient()
    try:
        surveys = dict(fan_out(asked, lambda server: _ask(client, server), forks))
    finally:
        client.close()
    return [surveys[server] for server in asked]


def accept(surveys: Sequence[Survey]) -> None:
    """Write the shown keys into the servers' known_hosts files, in place of what was there for the same names."""
    files: dict[Path, dict[str, list[bytes]]] = defaultdict(dict)
    for item in surveys:
        target = item.server.target
        files[item.server.known_hosts_file][written(target.key_name, target.port)] = [key.wire for key in item.keys]
    for path, keys in files.items():
        store(path, keys)


def _hops(target: Target) -> int:
    return 0 if target.jump is None else 1 + _hops(target.jump)


def _ask(client: SshClient, server: Server) -> Survey:
    target = server.target
    trusted = known_hosts(target.known_hosts_files)
    keys: list[OfferedKey] = []
    for kind, algorithms in ALGORITHMS.items():
        try:
            key = client.offered_key(target, algorithms)
        except UnreachableError as error:
            return Survey(server, (), error.message, error.remedy)
        if key is not None:
            wire = key.asbytes()
            standing = trusted.standing(target.key_name, target.port, wire)
            keys.append(OfferedKey(kind, wire, standing))
    if any(key.standing is Standing.KNOWN for key in keys):
        kinds = {entry.kind for entry in trusted.entries(target.key_name, target.port)}
        other = [key for key in keys if key.kind not in kinds and key.standing is not Standing.REVOKED]
        keys = [replace(key, standing=Standing.UNKNOWN) if key in other else key for key in keys]
    return Survey(server, tuple(keys), "" if keys else f"{target.label}: no key that nodectl reads")
