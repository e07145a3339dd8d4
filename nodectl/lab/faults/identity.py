"""Faults of who a host is and whom it knows, and of variables that its logins get."""

from __future__ import annotations

import re

from nodectl.errors import UsageError
from nodectl.lab.faults import Fault, Scene
from nodectl.lab.faults.system import file_fault
from nodectl.lab.state import HostRecord


def _peer(scene: Scene) -> HostRecord:
    """Return the first other host of the lab."""
    peers = [host for host in scene.state.hosts if host.name != scene.host.name and host.up]
    if not peers:
        raise UsageError(f"{scene.host.name} has no peer", "bring the lab up with more hosts: `nodectl lab up -n 2`")
    return peers[0]


def _peers_id(scene: Scene, _: str) -> str:
    peer = Scene(scene.folder, scene.state, _peer(scene))
    return (peer.root / "etc/machine-id").read_text(encoding="utf-8")


def _other_address(scene: Scene, text: str) -> str:
    """Return the text with an address of TEST-NET-1, which nobody has, in the peer's line."""
    return re.sub(rf"^\S+ {re.escape(_peer(scene).name)}$", f"192.0.2.9 {_peer(scene).name}", text, flags=re.MULTILINE)


FAULTS: tuple[Fault, ...] = (
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
    file_fault(
        "variable-bashrc",
        "~/.bashrc of one host exports NCCL_IB_TIMEOUT",
        ("fleet_login_variables",),
        "root/.bashrc",
        lambda _, text: f"{text}export NCCL_IB_TIMEOUT=23\n",
    ),
    file_fault(
        "variable-environment",
        "/etc/environment of one host has an LD_LIBRARY_PATH",
        ("fleet_login_variables",),
        "etc/environment",
        lambda _, text: f'{text}LD_LIBRARY_PATH="/opt/other/lib"\n',
    ),
    file_fault(
        "variable-profile",
        "a script of one host's profile.d hides GPUs from CUDA",
        ("fleet_login_variables",),
        "etc/profile.d/site.sh",
        lambda _, text: f"{text}export CUDA_VISIBLE_DEVICES=0,1\n",
    ),
)
