"""Faults of who a host is and whom it knows: its SSH key, its identity, its peers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from nodectl.errors import LabError, UsageError
from nodectl.lab.base import write_file
from nodectl.lab.faults import Fault, Scene
from nodectl.lab.faults.system import file_fault
from nodectl.lab.files import know_host, new_key
from nodectl.lab.state import HostRecord

_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
_RESTART_S, _RETRY_S = 10.0, 0.02
_MUTE = {"link-down", "sshd-dead"}


def _change(scene: Scene, _: str) -> None:
    for source, backup in _backups(scene):
        if not backup.exists():
            write_file(backup, source.read_bytes(), 0o600)
    _use(scene, *new_key())


def _restore(scene: Scene, undo: str) -> None:
    private, public = (backup for _, backup in _backups(scene))
    if not public.exists():
        return
    line = " ".join(public.read_text(encoding="utf-8").split()[:2])
    _use(scene, private.read_bytes(), line)
    know_host(scene.folder, scene.host, line)  # the operator may have accepted the other key meanwhile
    private.unlink()
    public.unlink()


def _backups(scene: Scene) -> list[tuple[Path, Path]]:
    """(file of the host, its copy in the lab's folder) of the private key, then of the public one."""
    keys = [scene.root / _HOST_KEY, scene.root / f"{_HOST_KEY}.pub"]
    return [(key, scene.folder.store / scene.host.name / f"before-{key.name}") for key in keys]


def _use(scene: Scene, private: bytes, public: str) -> None:
    path = scene.root / _HOST_KEY
    draft = path.with_name("new-key")
    write_file(draft, private, 0o600)
    draft.replace(path)
    path.with_suffix(".pub").write_text(f"{public} root@{scene.host.name}\n", encoding="utf-8")
    os.kill(scene.pid, signal.SIGHUP)  # sshd starts itself again, with its sessions alive
    if _MUTE & set(scene.kinds()):
        return
    deadline = time.monotonic() + _RESTART_S
    while time.monotonic() < deadline:
        command = ["ssh-keyscan", "-T", "2", "-t", "ed25519", scene.host.address]
        if public in subprocess.run(command, capture_output=True, text=True, check=False).stdout:
            return
        time.sleep(_RETRY_S)
    raise LabError(f"{scene.host.name} does not show its new key", f"look at {path.parents[2]}/var/log/sshd.log")


def _peer(scene: Scene) -> HostRecord:
    peers = [host for host in scene.state.hosts if host.name != scene.host.name and host.up]
    if not peers:
        raise UsageError(f"{scene.host.name} has no peer", "bring the lab up with more hosts: `nodectl lab up -n 2`")
    return peers[0]


def _peers_id(scene: Scene, _: str) -> str:
    peer = Scene(scene.folder, scene.state, _peer(scene))
    return (peer.root / "etc/machine-id").read_text(encoding="utf-8")


def _other_address(scene: Scene, text: str) -> str:
    return re.sub(rf"^\S+ {re.escape(_peer(scene).name)}$", f"192.0.2.9 {_peer(scene).name}", text, flags=re.MULTILINE)


FAULTS: tuple[Fault, ...] = (
    Fault("host-key", "the host shows another SSH key than the known one", ("reach",), happens=_change, heal=_restore),
    file_fault(
        "machine-id",
        "the host was cloned: it has another one's machine-id",
        ("fleet_duplicate",),
        "etc/machine-id",
        _peers_id,
        0o444,
        takes_two=True,
    ),
    file_fault(
        "hosts-file",
        "/etc/hosts has another address for a peer's name",
        ("fleet_hosts_file",),
        "etc/hosts",
        _other_address,
    ),
)
