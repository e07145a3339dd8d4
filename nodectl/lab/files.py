"""The files that make a lab an ordinary fleet: Ansible inventory, known hosts, an ssh configuration, keys."""

import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from nodectl.common.node_paths import LAB_SHARE
from nodectl.lab.spec import show_rate
from nodectl.lab.state import HostRecord, LabFolder, LabState


def lab_variables() -> dict[str, object]:
    """Return the variables of every lab host, by name; `nodectl_lab` says that nobody has to be asked about it."""
    return {"nodectl_lab": True, "nodectl_wheelhouse": f"{LAB_SHARE}/wheels", "nodectl_uv": f"{LAB_SHARE}/uv"}


def new_key() -> tuple[bytes, str]:
    """Return an ed25519 pair: the private file's content, and the public line without a comment."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def write_files(
    folder: LabFolder,
    state: LabState,
    host_keys: Mapping[str, str],
    profiles: Mapping[str, Mapping[str, str]],
) -> None:
    """Write inventory, known_hosts and ssh_config of a lab; `host_keys` are public lines, both by host."""
    folder.known_hosts.write_text(
        "".join(f"{_known_line(host, host_keys[host.name])}\n" for host in state.hosts), encoding="utf-8"
    )
    shared = (
        f"    User root\n    IdentityFile {_inner(folder.client_key)}\n    IdentitiesOnly yes\n"
        f"    UserKnownHostsFile {_inner(folder.known_hosts)}\n    StrictHostKeyChecking yes\n"
    )
    blocks = (f"Host {host.name}\n    HostName {host.address}\n{shared}" for host in state.hosts)
    folder.ssh_config.write_text("".join(blocks), encoding="utf-8")
    text = yaml.safe_dump(_inventory(folder, state, profiles), sort_keys=False, width=1000)
    folder.inventory.write_text(
        f"# the lab '{folder.name}': written by `nodectl lab up`, gone after `lab down`\n{text}"
    )


def know_host(folder: LabFolder, host: HostRecord, public: str) -> None:
    """Make `public` the only key that known_hosts has for the host."""
    lines = folder.known_hosts.read_text(encoding="utf-8").splitlines()
    others = [line for line in lines if not {host.name, host.address} & set(line.split(" ")[0].split(","))]
    folder.known_hosts.write_text("\n".join([*others, _known_line(host, public)]) + "\n", encoding="utf-8")


def _known_line(host: HostRecord, public: str) -> str:
    return f"{host.name},{host.address} {public}"


def give_to_operator(folder: LabFolder) -> None:
    """Under sudo: what the operator's own ssh reads, and may change, is the operator's."""
    if "SUDO_UID" in os.environ and "SUDO_GID" in os.environ:
        for path in (folder.inventory, folder.known_hosts, folder.ssh_config, folder.client_key):
            os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))


def _inventory(folder: LabFolder, state: LabState, profiles: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    known_hosts = _inner(folder.known_hosts)
    # ssh's arguments are split as a shell would
    known_hosts = f"'{known_hosts}'" if " " in known_hosts else known_hosts
    variables = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(folder.client_key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts}",
        "ansible_python_interpreter": "/usr/bin/python3",
        "nodectl_hardware": "lab-cpu",
        "nodectl_stack": "cpu",
        "nodectl_tuning": "stock",
        **lab_variables(),
    }
    if state.spec.rate_bits:
        variables["nodectl_link_rate"] = show_rate(state.spec.rate_bits)
    hosts = {
        host.name: {"ansible_host": host.address}
        | {f"nodectl_{kind}": name for kind, name in profiles.get(host.name, {}).items()}
        for host in state.hosts
    }
    return {"all": {"children": {"lab": {"hosts": hosts, "vars": variables}}}}


def _inner(path: Path) -> str:
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text
