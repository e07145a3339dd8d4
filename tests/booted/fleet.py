"""Several booted systems as one fleet: their root file systems, keys, ssh configuration and inventories."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nodectl.common.node_paths import LAB_SHARE
from nodectl.lab.base import write_file
from nodectl.lab.files import new_key
from tests.booted.journal import Journal
from tests.booted.system import System

ROOT_LOGIN, PASSWORD_LOGIN, FREE_LOGIN = "root", "ops", "auto"
_INTERFACES = """\
auto lo
iface lo inet loopback

auto eth0
iface eth0 inet static
    address {address}/16
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Systems that are up; `password` is sudo's for the login `ops`."""

    home: Path
    systems: Sequence[System]
    password: str

    def __getitem__(self, name: str) -> System:
        """The system of that name."""
        return next(system for system in self.systems if system.name == name)

    def inventory(self, logins: Mapping[str, str] | None = None, **variables: Any) -> str:
        """The path of a new inventory with these variables, hosts as in `logins` {name: login}, else all as root."""
        chosen = logins or dict.fromkeys((system.name for system in self.systems), ROOT_LOGIN)
        common = {
            "ansible_ssh_private_key_file": str(self.home / "client_key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.home / 'known_hosts'}",
            "ansible_python_interpreter": "/usr/bin/python3",
            "nodectl_hardware": "lab-cpu",
            "nodectl_stack": "cpu",
            "nodectl_tuning": "stock",
            "nodectl_wheelhouse": f"{LAB_SHARE}/wheels",
            "nodectl_uv": f"{LAB_SHARE}/uv",
        }
        group = {
            "hosts": {
                name: {"ansible_host": self[name].address, "ansible_user": login} for name, login in chosen.items()
            },
            "vars": common | variables,
        }
        folder = self.home / "inventories" / secrets.token_hex(4)
        folder.mkdir(parents=True)
        path = folder / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": {"children": {"booted": group}}}, sort_keys=False))
        return str(path)


def mount_root(journal: Journal, image: Path, home: Path) -> Path:
    """A system's own root over the image; written to memory where the folder's file system cannot hold it."""
    layers, root = home / "layers", home / "root"
    for folder in (layers, root):
        folder.mkdir(parents=True)
    try:
        _overlay(journal, image, layers, root)
    except subprocess.CalledProcessError:
        journal.note("mount", str(layers))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(layers)], check=True)
        _overlay(journal, image, layers, root)
    return root


def _overlay(journal: Journal, image: Path, layers: Path, root: Path) -> None:
    for name in ("upper", "work"):
        (layers / name).mkdir(exist_ok=True)
    journal.note("mount", str(root))
    options = f"lowerdir={image},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(root)], check=True, capture_output=True)


@contextmanager
def mounted_disk(journal: Journal, home: Path) -> Iterator[Path]:
    """A machine's disk as a folder, before its first boot."""
    root = home / "root"
    root.mkdir()
    journal.note("mount", str(root))
    subprocess.run(["mount", "-o", "loop", str(home / "disk.ext4"), str(root)], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


class Identity:
    """The operator's key and password, and what each system is known by."""

    def __init__(self, home: Path) -> None:
        """Makes both; they live as long as the session's folder."""
        self.home = home
        self.password = secrets.token_urlsafe(9)
        private, self._public = new_key()
        write_file(home / "client_key", private, 0o600)
        self.ssh_config = home / "ssh_config"
        (home / "known_hosts").touch()

    def give(self, root: Path, name: str, address: str) -> None:
        """Write a system's name, address, host key, logins and machine id into its root, before its first boot."""
        private, public = new_key()
        write_file(root / "etc/ssh/ssh_host_ed25519_key", private, 0o600)
        (root / "etc/ssh/ssh_host_ed25519_key.pub").write_text(public + "\n")
        (root / "etc/hostname").write_text(f"{name}\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        (root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n")
        (root / "etc/network/interfaces").write_text(_INTERFACES.format(address=address))
        (root / "var/log/journal").mkdir(exist_ok=True)
        for place in ("root", f"home/{PASSWORD_LOGIN}", f"home/{FREE_LOGIN}"):
            self._authorize(root / place)
        subprocess.run(
            ["chroot", str(root), "chpasswd"], input=f"{PASSWORD_LOGIN}:{self.password}\n", text=True, check=True
        )
        with (self.home / "known_hosts").open("a") as stream:
            stream.write(f"{name},{address} {public}\n")
        with self.ssh_config.open("a") as stream:
            stream.write(_ssh_entry(self.home, name, address))

    def _authorize(self, home: Path) -> None:
        owner = home.stat()
        folder, keys = home / ".ssh", home / ".ssh/authorized_keys"
        folder.mkdir(mode=0o700, exist_ok=True)
        keys.write_text(self._public + "\n")
        keys.chmod(0o600)
        for path in (folder, keys):
            os.chown(path, owner.st_uid, owner.st_gid)


def _ssh_entry(home: Path, name: str, address: str) -> str:
    options: Mapping[str, object] = {
        "HostName": address,
        "IdentityFile": home / "client_key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": home / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": 30,
        "ServerAliveInterval": 5,
        "ServerAliveCountMax": 6,
    }
    return "".join([f"Host {name}\n", *(f"    {key} {value}\n" for key, value in options.items())])
