"""A real sshd on a loopback port, with its own keys: what the transport is tested against where there is no lab."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.model.host import Host
from nodectl.transport.router import open_transport

_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
_PRIVSEP = Path("/run/sshd")


@dataclass(frozen=True, slots=True)
class Sshd:
    """An SSH server of this user on 127.0.0.1."""

    port: int
    folder: Path

    @property
    def key(self) -> Path:
        """A private key that it lets in."""
        return self.folder / "id"

    @property
    def host_key(self) -> str:
        """Kind and base64 of its host key."""
        return " ".join((self.folder / "host.pub").read_text().split()[:2])

    @property
    def known_hosts(self) -> Path:
        """A known_hosts file that names it."""
        return self.folder / "known_hosts"

    def host(self, name: str = "web1", **variables: object) -> Host:
        """It as a host of an inventory; `variables` come on top of those that reach it."""
        reach: dict[str, object] = {
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
        }
        return Host(name, "127.0.0.1", self.port, getpass.getuser(), "ssh", {**reach, **variables})

    def with_start_file(self, text: str, folder: Path) -> Host:
        """It with a login whose shell reads a start file of this text before it runs a command."""
        key, start = folder / "key", folder / "start"
        start.write_text(f'{text}\neval "$SSH_ORIGINAL_COMMAND"\n')
        _keygen(key)
        with (self.folder / "authorized_keys").open("a") as authorized:
            authorized.write(f'command="/bin/sh {start}" {key.with_suffix(".pub").read_text()}')
        return self.host(ansible_ssh_private_key_file=str(key))

    def inventory(self, folder: Path, hosts: str = "web1") -> Path:
        """An inventory file with it under the names in `hosts`."""
        path = folder / "hosts.ini"
        path.write_text(
            f"[web]\n{hosts}\n[web:vars]\nansible_host=127.0.0.1\nansible_port={self.port}\n"
            f"ansible_user={getpass.getuser()}\nansible_ssh_private_key_file={self.key}\n"
            f"ansible_ssh_common_args='-o UserKnownHostsFile={self.known_hosts}'\n"
        )
        return path


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


# what a login shell's start-up files say on both streams, with and without a line's end
_NOISE = """echo 'Welcome to gpu07 {"plan": {}}'; printf 'no newline'; echo 'bash: warning: setlocale: no locale' >&2
eval "$SSH_ORIGINAL_COMMAND"
"""


def _serve(folder: Path, authorized: Path, more: str = "") -> Iterator[Sshd]:
    port = _free_port()
    _keygen(folder / "host")
    shutil.copy(authorized, folder / "id")
    shutil.copy(authorized.with_suffix(".pub"), folder / "authorized_keys")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxStartups 200\nPermitRootLogin yes\n"
        # locks of its own, and no view of the jobs that other tests run on this machine
        f"Subsystem sftp internal-sftp\nSetEnv NODECTL_LOCK_FOLDER={folder}\n{more}"
    )
    if os.getuid() == 0:
        _PRIVSEP.mkdir(mode=0o755, exist_ok=True)  # and it stays: servers of other test processes need it as well
    process = subprocess.Popen([_SSHD, "-D", "-f", str(folder / "config"), "-E", str(folder / "log")])
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"sshd did not start: {(folder / 'log').read_text()}")
            time.sleep(0.02)
        server = Sshd(port, folder)
        server.known_hosts.write_text(f"[127.0.0.1]:{port} {server.host_key}\n")
        yield server
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One private key for all servers."""
    path = tmp_path_factory.mktemp("client") / "id"
    _keygen(path)
    return path


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory, client_key: Path) -> Iterator[Sshd]:
    """The server under test."""
    if not Path(_SSHD).exists():
        pytest.skip("no sshd on this machine")
    yield from _serve(tmp_path_factory.mktemp("sshd"), client_key)


@pytest.fixture(scope="session")
def jump_sshd(tmp_path_factory: pytest.TempPathFactory, client_key: Path) -> Iterator[Sshd]:
    """A second server, to go through, which says what pam_slurm_adopt says to who has no job there."""
    folder = tmp_path_factory.mktemp("jump")
    (folder / "banner").write_text("Access denied by pam_slurm_adopt: you have no active jobs on this node\n")
    yield from _serve(folder, client_key, f"Banner {folder}/banner\n")


@pytest.fixture(scope="session")
def noisy_sshd(tmp_path_factory: pytest.TempPathFactory, client_key: Path) -> Iterator[Sshd]:
    """A server whose login shell prints before every command's output."""
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "noise").write_text(_NOISE)
    yield from _serve(folder, client_key, f"ForceCommand . {folder}/noise\n")


@pytest.fixture
def transport() -> Iterator[object]:
    """What `nodectl` itself uses."""
    made = open_transport()
    yield made
    made.close()
