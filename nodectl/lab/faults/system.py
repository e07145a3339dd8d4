"""Faults of a host's system that are real in a namespace: settings, limits, files, clock, sshd, a taken port, CPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from nodectl.common.resources import table
from nodectl.lab.cgroups import cpu_group_of, slow_down, speed_up
from nodectl.lab.faults import Fault, Scene

_SYSCTL = "net/ipv4/tcp_rmem"
_SMALL = "4096 87380 131072"
_PORT = 29500  # torchrun's default
_HOLDER = "run/nodectl-lab-port.pid"
_HOLD = f"""
import os, signal, socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("0.0.0.0", {_PORT}))
server.listen()
if os.fork():
    os._exit(0)
os.setsid()
with open("/{_HOLDER}", "w") as stream:
    stream.write(str(os.getpid()))
null = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
signal.pause()
"""


def _write_sysctl(scene: Scene, value: str) -> None:
    scene.run(["sh", "-c", 'printf %s "$2" >"/proc/sys/$1"', "sysctl", _SYSCTL, value])


def file_fault(
    name: str,
    about: str,
    checks: tuple[str, ...],
    path: str,
    change: Callable[[Scene, str], str],
    mode: int = 0o644,
    *,
    takes_two: bool = False,
    dressed: bool = False,
) -> Fault:
    """Return a fault by which a file says what `change` makes of its text; one that was not there goes again."""

    def remember(scene: Scene) -> str:
        file = scene.root / path
        return f"+{file.read_text(encoding='utf-8')}" if file.exists() else ""

    def happens(scene: Scene, undo: str) -> None:
        _put(scene, path, change(scene, undo[1:]), mode)

    def heal(scene: Scene, undo: str) -> None:
        if undo:
            _put(scene, path, undo[1:], mode)
        else:
            (scene.root / path).unlink(missing_ok=True)

    kinds = {"takes_two": takes_two, "dressed": dressed}
    return Fault(name, about, checks, happens=happens, heal=heal, remember=remember, **kinds)


def _put(scene: Scene, path: str, text: str, mode: int) -> None:
    file = scene.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def _of_row(
    name: str, about: str, found_by: list[str], path: str, adds: str = "", says: str = "", *, program: bool = False
) -> Fault:
    mode = 0o755 if program else 0o644
    return file_fault(name, about, tuple(found_by), path, lambda _, text: says or text + adds, mode)


def _leave_port(scene: Scene, _: str) -> None:
    script = '[ ! -s "$1" ] || kill "$(cat "$1")"; rm -f "$1"'
    scene.run(["sh", "-c", script, "leave", f"/{_HOLDER}"])


FAULTS = (
    Fault(
        "sshd-dead",
        "sshd hangs: it accepts and never greets",
        ("reach",),
        # connections are accepted by the kernel, and nobody greets
        happens=lambda scene, _: os.kill(scene.pid, signal.SIGSTOP),
        heal=lambda scene, _: os.kill(scene.pid, signal.SIGCONT),
    ),
    Fault(
        "sysctl",
        f"{_SYSCTL.replace('/', '.')} has a small maximum",
        ("fleet_sysctl",),
        happens=lambda scene, _: _write_sysctl(scene, _SMALL),
        heal=_write_sysctl,
        remember=lambda scene: " ".join(scene.run(["cat", f"/proc/sys/{_SYSCTL}"]).split()),
    ),
    Fault(
        "port-taken",
        f"something listens on port {_PORT}, torchrun's own",
        ("port_taken",),
        happens=lambda scene, _: scene.run(["python3", "-c", _HOLD]),
        heal=_leave_port,
    ),
    Fault(
        "slow-cpu",
        "the host gets a fifth of one CPU",
        ("memory",),
        happens=lambda scene, _: slow_down(scene.folder.cgroup, scene.host.name, scene.pid),
        heal=lambda scene, group: speed_up(scene.folder.cgroup, scene.host.name, group),
        remember=lambda scene: cpu_group_of(scene.pid),
        load=True,
    ),
    *(_of_row(name, **row) for name, row in table(Path(__file__).with_name("files.yml")).items()),
)
