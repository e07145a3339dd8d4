"""Faults of a host's system that are real in a namespace: settings, limits, files, clock, sshd, a taken port, CPU."""

from __future__ import annotations

import os
import signal

from nodectl.lab.cgroups import cpu_group_of, slow_down, speed_up
from nodectl.lab.faults.base import Fault, Scene

_SYSCTL = "net/ipv4/tcp_rmem"
_SMALL = "4096 87380 131072"
_LIMITS = "etc/security/limits.d/99-nodectl-lab-fault.conf"
_LOW_LIMITS = "".join(f"{who} - nofile 1024\n{who} - memlock 64\n{who} soft stack unlimited\n" for who in ("*", "root"))
_NCCL = "etc/nccl.conf"
_USER_NCCL = "root/.nccl.conf"
_DATE = "usr/local/bin/date"
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


def _stop(scene: Scene, undo: str) -> None:
    """Connections are accepted by the kernel, and nobody greets."""
    os.kill(scene.pid, signal.SIGSTOP)


def _go_on(scene: Scene, undo: str) -> None:
    os.kill(scene.pid, signal.SIGCONT)


def _live(scene: Scene) -> str:
    return " ".join(scene.run(["cat", f"/proc/sys/{_SYSCTL}"]).split())


def _write_sysctl(scene: Scene, value: str) -> None:
    scene.run(["sh", "-c", 'printf %s "$2" >"/proc/sys/$1"', "sysctl", _SYSCTL, value])


def _lower(scene: Scene, undo: str) -> None:
    _write_sysctl(scene, _SMALL)


def _raise(scene: Scene, undo: str) -> None:
    _write_sysctl(scene, undo)


def _limit(scene: Scene, undo: str) -> None:
    _put(scene, _LIMITS, _LOW_LIMITS)


def _unlimit(scene: Scene, undo: str) -> None:
    (scene.root / _LIMITS).unlink(missing_ok=True)


def _put(scene: Scene, name: str, text: str, mode: int = 0o644) -> None:
    path = scene.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _remember_nccl(scene: Scene) -> str:
    return _content(scene, _NCCL)


def _remember_user(scene: Scene) -> str:
    return _content(scene, _USER_NCCL)


def _content(scene: Scene, name: str) -> str:
    """`+` and the file's text; nothing where there is no such file."""
    path = scene.root / name
    return f"+{path.read_text(encoding='utf-8')}" if path.exists() else ""


def _give_back(scene: Scene, name: str, undo: str) -> None:
    if undo:
        _put(scene, name, undo[1:])
    else:
        (scene.root / name).unlink(missing_ok=True)


def _spoil(scene: Scene, undo: str) -> None:
    """A blank before and after `=` is part of name and value: NCCL reads it so."""
    _put(scene, _NCCL, f"{undo[1:]}NCCL_IB_TIMEOUT = 22\n")


def _unspoil(scene: Scene, undo: str) -> None:
    _give_back(scene, _NCCL, undo)


def _debug(scene: Scene, undo: str) -> None:
    _put(scene, _USER_NCCL, f"{undo[1:]}NCCL_ALGO=Tree\n")


def _undebug(scene: Scene, undo: str) -> None:
    _give_back(scene, _USER_NCCL, undo)


def _fake_clock(scene: Scene, undo: str) -> None:
    _put(scene, _DATE, _FAKE_DATE, 0o755)


def _true_clock(scene: Scene, undo: str) -> None:
    (scene.root / _DATE).unlink(missing_ok=True)


def _take_port(scene: Scene, undo: str) -> None:
    scene.run(["python3", "-c", _HOLD])


def _leave_port(scene: Scene, undo: str) -> None:
    script = '[ ! -s "$1" ] || kill "$(cat "$1")"; rm -f "$1"'
    scene.run(["sh", "-c", script, "leave", f"/{_HOLDER}"])


def _slow(scene: Scene, undo: str) -> None:
    slow_down(scene.folder.cgroup, scene.host.name, scene.pid)


def _fast(scene: Scene, undo: str) -> None:
    speed_up(scene.folder.cgroup, scene.host.name, undo)


def _cpu_group(scene: Scene) -> str:
    return cpu_group_of(scene.pid)


FAULTS = (
    Fault("sshd-dead", "sshd hangs: it accepts and never greets", ("reach",), happens=_stop, heal=_go_on),
    Fault(
        "sysctl",
        f"{_SYSCTL.replace('/', '.')} has a small maximum",
        ("fleet_sysctl",),
        happens=_lower,
        heal=_raise,
        remember=_live,
    ),
    Fault(
        "limits",
        "a session gets 1,024 files, 64 KiB of locked memory, and a stack without end",
        ("limits",),
        happens=_limit,
        heal=_unlimit,
    ),
    Fault(
        "nccl-conf",
        "/etc/nccl.conf has a line with blanks around =",
        ("nccl_file",),
        happens=_spoil,
        heal=_unspoil,
        remember=_remember_nccl,
    ),
    Fault(
        "nccl-debug",
        "~/.nccl.conf keeps NCCL_ALGO=Tree",
        ("nccl_debug",),
        happens=_debug,
        heal=_undebug,
        remember=_remember_user,
    ),
    Fault(
        "clock",
        f"a fake time source puts the clock {_OFF_S} s ahead",
        ("clock",),
        happens=_fake_clock,
        heal=_true_clock,
    ),
    Fault(
        "port-taken",
        f"something listens on port {_PORT}, torchrun's own",
        ("port_taken",),
        happens=_take_port,
        heal=_leave_port,
    ),
    Fault(
        "slow-cpu",
        "the host gets a fifth of one CPU",
        ("memory",),
        happens=_slow,
        heal=_fast,
        remember=_cpu_group,
        load=True,
    ),
)
