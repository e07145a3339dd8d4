"""What the node itself has to do with a job: whether it can take part in an attempt, and why it asks for an end."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Any, Dict, NamedTuple

from ..common import machine
from ..common.sockets import family
from .folder import no_space, venv_of
from .process import read_text

_ASK_S = 1.0
_SHUTS_DOWN = "systemd-shutdow"  # process 1 at the very end, as far as its name goes


class Leaving(NamedTuple):
    """Say why this host's part ends, while the job may go on; `kind` and `message` are those of its failure."""

    kind: str
    message: str


ASKED = Leaving("supervisor", "the job's supervisor there was asked to end by a signal, not by `nodectl jobs stop`")


def why_asked() -> Leaving:
    """Return why the node asks this process to end."""
    # of a system that is not quite well the status of systemctl is not 0
    state = machine.printed(["systemctl", "is-system-running"], _ASK_S, any_status=True) or ""
    if read_text("/proc/1/comm").startswith(_SHUTS_DOWN) or state.strip() == "stopping":
        return Leaving("rebooted", "the node was shut down while the job ran there")
    return ASKED


_GPU_S = 15.0


def unfit(plan: Dict[str, Any]) -> str:
    """Return why not: launcher, environment, disk, port or GPUs; "" if it can."""
    for look in (lacks_launcher, lambda _plan: no_space(os.getcwd()), _port, _gpus):
        reason = look(plan)
        if reason:
            return f"{plan['members'][plan['member']]['name']}: {reason}"
    return ""


def lacks_launcher(plan: Dict[str, Any]) -> str:
    """Return why launcher or torchrun cannot be started; empty if they can."""
    if not os.access(plan["launcher"], os.X_OK):
        return f"{plan['launcher']} is not there"
    start = plan.get("start") or {}
    if start.get("container"):  # torchrun is the image's, which is not looked into
        return "" if shutil.which(start["container"]["engine"]) else f"{start['container']['engine']} is not there"
    if start.get("engine", "torchrun") != "torchrun":
        return ""
    environment = venv_of(plan, plan["members"][plan["member"]])
    torchrun = os.path.join(environment, "bin", "torchrun") if environment else ""
    return f"{torchrun} is not there" if torchrun and not os.access(torchrun, os.X_OK) else ""


def _port(plan: Dict[str, Any]) -> str:
    """Try the rendezvous' port; a connection of the last attempt that lingers is no hindrance."""
    address = plan["members"][plan["member"]]["address"]
    with socket.socket(family(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, int(plan["master_port"])))
        except OSError as error:
            return f"port {plan['master_port']} of {address}: {error.strerror}"
    return ""


def _gpus(plan: Dict[str, Any]) -> str:
    wanted = int(plan.get("gpus_per_node") or 0)
    if not wanted:
        return ""
    import subprocess  # of use between two attempts alone

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_GPU_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    lines = done.stdout.splitlines()
    lost = [f"GPU {line.partition(',')[0]}" for line in lines if machine.LOST in line]
    if done.returncode:
        return f"nvidia-smi ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:200]}"
    if lost:
        return f"lost: {', '.join(lost)}"
    return f"{len(lines)} of {wanted} GPUs answer" if len(lines) < wanted else ""
