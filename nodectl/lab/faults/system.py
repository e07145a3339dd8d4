"""Faults of a host's system that are real in a namespace: settings, limits, files, clock, sshd, a taken port, CPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from nodectl.lab.cgroups import cpu_group_of, slow_down, speed_up
from nodectl.lab.faults import Fault, Scene

_SYSCTL = "net/ipv4/tcp_rmem"
_SMALL = "4096 87380 131072"
_LOW_LIMITS = "".join(f"{who} - nofile 1024\n{who} - memlock 64\n{who} soft stack unlimited\n" for who in ("*", "root"))
_OFF_S = 7
# a `date` that is found before the system's own: the clock itself is the machine's
_FAKE_DATE = f"""#!/bin/sh
# the lab's fake time source
exec /bin/date --date='+{_OFF_S} seconds' "$@"
"""
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


def _live(scene: Scene) -> str:
    return " ".join(scene.run(["cat", f"/proc/sys/{_SYSCTL}"]).split())


def _write_sysctl(scene: Scene, value: str) -> None:
    scene.run(["sh", "-c", 'printf %s "$2" >"/proc/sys/$1"', "sysctl", _SYSCTL, value])


def _file(name: str, about: str, check: str, path: str, change: Callable[[str], str], mode: int = 0o644) -> Fault:
    """Return a fault by which a file of the host says what `change` makes of its text."""
    return file_fault(name, about, (check,), path, lambda _, text: change(text), mode)


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
        remember=_live,
    ),
    _file(
        "limits",
        "a session gets 1,024 files, 64 KiB of locked memory, and a stack without end",
        "limits",
        "etc/security/limits.d/99-nodectl-lab-fault.conf",
        lambda _: _LOW_LIMITS,
    ),
    _file(
        "nccl-conf",
        "/etc/nccl.conf has a line with blanks around =",
        "nccl_file",
        "etc/nccl.conf",
        # a blank before and after `=` is part of name and value: NCCL reads it so
        lambda text: f"{text}NCCL_IB_TIMEOUT = 22\n",
    ),
    _file(
        "nccl-quotes",
        "/etc/nccl.conf has a value in quotes",
        "nccl_lines",
        "etc/nccl.conf",
        lambda text: f'{text}NCCL_SOCKET_FAMILY="AF_INET"\n',
    ),
    _file(
        "nccl-name",
        "/etc/nccl.conf has a variable with a slip in its name",
        "nccl_lines",
        "etc/nccl.conf",
        lambda text: f"{text}NCCL_SOCKET_IFNAM=eth0\n",
    ),
    _file(
        "nccl-user",
        "~/.nccl.conf of one host sets NCCL_IB_TIMEOUT",
        "fleet_nccl_user",
        "root/.nccl.conf",
        lambda text: f"{text}NCCL_IB_TIMEOUT=23\n",
    ),
    _file(
        "nccl-debug",
        "~/.nccl.conf keeps NCCL_ALGO=Tree",
        "nccl_debug",
        "root/.nccl.conf",
        lambda text: f"{text}NCCL_ALGO=Tree\n",
    ),
    _file(
        "no-python3",
        "the login finds no python3",
        "python3",
        "usr/local/bin/python3",
        lambda _: "#!/bin/sh\nexit 127\n",
        0o755,
    ),
    _file(
        "clock",
        f"a fake time source puts the clock {_OFF_S} s ahead",
        "clock",
        "usr/local/bin/date",
        lambda _: _FAKE_DATE,
        0o755,
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
)
