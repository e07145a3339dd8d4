"""The ways in which a lab host can be broken on purpose, and how each is undone."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodectl.errors import LabError, UsageError
from nodectl.lab.files import know_host, new_key, write_secret
from nodectl.lab.network import ip_batch, port_name
from nodectl.lab.state import FaultRecord, HostRecord, LabFolder, LabState, with_fault, without_fault
from nodectl.lab.syscalls import inside_network
from nodectl.lab.wiring import set_carrier

_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
_FILLING = "var/lib/nodectl-lab-disk-full"
_RESTART_S, _RETRY_S = 10.0, 0.02


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happens."""

    folder: LabFolder
    state: LabState
    host: HostRecord

    @property
    def root(self) -> Path:
        """The host's file system, reached through its PID 1."""
        if self.host.process is None or not self.host.up:
            raise LabError(f"{self.host.name} is not up", "run `nodectl lab down`, then `nodectl lab up`")
        return Path(f"/proc/{self.host.process.pid}/root")


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind; `heal` must do no harm where the fault did not come to be."""

    happens: Callable[[Scene], None]
    heal: Callable[[Scene], None]


def break_host(folder: LabFolder, kind: str, name: str) -> None:
    """Let `kind` happen to the host; UsageError where either is unknown. Recorded first."""
    if kind not in FAULTS:
        raise UsageError(f"no fault '{kind}'", f"the kinds are {', '.join(sorted(FAULTS))}")
    state = folder.running()
    scene = Scene(folder, state, state.host(name))
    record = FaultRecord(kind, name)
    if record in state.faults:
        return
    scene.root  # noqa: B018 - a dead host cannot be broken
    folder.write(with_fault(state, record))
    try:
        FAULTS[kind].happens(scene)
    except BaseException:
        folder.write(state)
        raise


def heal_hosts(folder: LabFolder, name: str | None) -> list[FaultRecord]:
    """Undo the recorded faults of one host, or of all; the faults that were healed."""
    state = folder.running()
    if name is not None:
        state.host(name)
    healed = [fault for fault in state.faults if name in (None, fault.host)]
    for fault in healed:
        scene = Scene(folder, state, state.host(fault.host))
        if scene.host.up:
            FAULTS[fault.kind].heal(scene)
        state = folder.write(without_fault(state, fault))
    return healed


def _cut(scene: Scene) -> None:
    _set_link(scene, up=False)


def _join(scene: Scene) -> None:
    _set_link(scene, up=True)


def _set_link(scene: Scene, *, up: bool) -> None:
    """At the switch's end: the host sees a cable without a signal, and can do nothing about it."""
    if scene.state.link == "wire":
        set_carrier(scene.folder, scene.state, scene.host, up=up)
        return
    port = port_name(scene.state.hosts.index(scene.host))
    with inside_network(scene.folder.switch):
        ip_batch([f"link set {port} {'up' if up else 'down'}"])


def _fill_disk(scene: Scene) -> None:
    """Claim every free block: blocks that are promised but not written cost the machine nothing."""
    if not scene.state.spec.disk_bytes:
        raise UsageError(
            f"{scene.host.name} has no disk of its own to fill: the machine's would be filled",
            "bring the lab up with a bounded disk, for example `nodectl lab up --disk 4G`",
        )
    path = scene.root / _FILLING
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        _claim(descriptor, os.statvfs(path).f_bavail * os.statvfs(path).f_frsize)
        with suppress(OSError):  # the last blocks, smaller than the file system gives away at once
            while True:
                os.write(descriptor, bytes(4096))
    finally:
        os.close(descriptor)


def _claim(descriptor: int, size_bytes: int) -> None:
    step_bytes, position = size_bytes, 0
    while step_bytes >= 4096:
        try:
            os.posix_fallocate(descriptor, position, step_bytes)
            position += step_bytes
        except OSError:
            step_bytes //= 2
    os.lseek(descriptor, 0, os.SEEK_END)


def _free_disk(scene: Scene) -> None:
    (scene.root / _FILLING).unlink(missing_ok=True)


def _change_key(scene: Scene) -> None:
    for source, backup in _key_backups(scene):
        if not backup.exists():
            write_secret(backup, source.read_bytes())
    _use_key(scene, *new_key())


def _restore_key(scene: Scene) -> None:
    (_, private), (_, public) = _key_backups(scene)
    if not public.exists():
        return
    line = " ".join(public.read_text(encoding="utf-8").split()[:2])
    _use_key(scene, private.read_bytes(), line)
    know_host(scene.folder, scene.host, line)  # the operator may have accepted the other key meanwhile
    private.unlink()
    public.unlink()


def _key_backups(scene: Scene) -> list[tuple[Path, Path]]:
    """(file of the host, its copy in the lab's folder) of the private key, then of the public one."""
    keys = [scene.root / _HOST_KEY, scene.root / f"{_HOST_KEY}.pub"]
    return [(key, scene.folder.store / scene.host.name / f"before-{key.name}") for key in keys]


def _use_key(scene: Scene, private: bytes, public: str) -> None:
    """Put the pair in place, and wait until sshd shows it."""
    pid = scene.host.process.pid if scene.host.process else 0
    path = scene.root / _HOST_KEY
    draft = path.with_name("new-key")
    write_secret(draft, private)
    draft.replace(path)
    path.with_suffix(".pub").write_text(f"{public} root@{scene.host.name}\n", encoding="utf-8")
    os.kill(pid, signal.SIGHUP)  # sshd starts itself anew, with its sessions alive
    deadline = time.monotonic() + _RESTART_S
    while time.monotonic() < deadline:
        if public in _shown_key(scene.host.address):
            return
        time.sleep(_RETRY_S)
    if not any(fault.kind == "link-down" and fault.host == scene.host.name for fault in scene.state.faults):
        raise LabError(f"{scene.host.name} does not show its new key", f"look at {path.parents[2]}/var/log/sshd.log")


def _shown_key(address: str) -> str:
    command = ["ssh-keyscan", "-T", "2", "-t", "ed25519", address]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


FAULTS = {
    "link-down": Fault(_cut, _join),
    "disk-full": Fault(_fill_disk, _free_disk),
    "host-key": Fault(_change_key, _restore_key),
}
