"""The user-space link from the outside: its devices in the hosts' namespaces, its process, and how a link is cut."""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import nodectl
from nodectl.common.files import replace_file
from nodectl.errors import LabError
from nodectl.lab.base import PATH
from nodectl.lab.network import PREFIX_BITS, forbid_ipv6, ip_batch, operator_address, queue_bytes
from nodectl.lab.state import HostRecord, LabFolder, LabState, Process
from nodectl.lab.syscalls import inside_network
from nodectl.lab.wire import HEADER_BYTES, READY

_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ, _SIOCSIFTXQLEN = 0x400454CA, 0x400454D0, 0x400454D8, 0x8943
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 1, 2, 4
_QUEUE_PACKETS = 10_000
_SETTLE_S, _RETRY_S = 5.0, 0.005


def start_wire(folder: LabFolder, state: LabState) -> LabState:
    """Give every host an `eth0`, the machine its uplink, and both to a wire process; `state` with that process."""
    with ExitStack() as stack:
        devices = []
        for host in state.hosts:
            pid = host.process.pid if host.process else 0
            with inside_network(f"/proc/{pid}/ns/net"):
                devices.append(stack.enter_context(_device("eth0")))
        devices.append(stack.enter_context(_device(folder.uplink)))
        return _start(folder, state, devices)


def set_carrier(folder: LabFolder, state: LabState, host: HostRecord, *, up: bool) -> None:
    """Tell the wire which hosts are cut, and wait until this one is as wanted."""
    if state.wire is None or not state.wire.alive or host.process is None:
        raise LabError("the process that carries the lab's links is gone", "run `nodectl lab down`, then `lab up`")
    path = cut_file(folder.path)
    cut = (set(json.loads(path.read_text())) if path.exists() else set()) - {host.address}
    replace_file(path, json.dumps(sorted(cut if up else {*cut, host.address})))
    os.kill(state.wire.pid, signal.SIGHUP)
    carrier = Path(f"/proc/{host.process.pid}/root/sys/class/net/eth0/carrier")
    deadline = time.monotonic() + _SETTLE_S
    while carrier.read_text().strip() != str(int(up)):
        if time.monotonic() > deadline:
            raise LabError(f"the link of {host.name} did not follow", "run `nodectl lab down`, then `lab up`")
        time.sleep(_RETRY_S)


def cut_file(lab: Path) -> Path:
    """Return where the addresses of the cut hosts stand."""
    return lab / "cut.json"


@contextmanager
def _device(name: str) -> Iterator[int]:
    """Make a TUN device in the current network namespace; it lasts as long as somebody holds the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(descriptor, _TUNSETVNETHDRSZ, struct.pack("i", HEADER_BYTES))
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFTXQLEN, struct.pack("16si20x", name.encode(), _QUEUE_PACKETS))
        yield descriptor
    finally:
        os.close(descriptor)


def _start(folder: LabFolder, state: LabState, descriptors: list[int]) -> LabState:
    """Start the wire, which reads its task from a pipe: it does nothing until its process is in the journal."""
    addresses = [*(host.address for host in state.hosts), operator_address(state.subnet)]
    task = {
        "ports": dict(zip(addresses, descriptors, strict=True)),
        "uplink": addresses[-1],
        "rate_bits": state.spec.rate_bits,
        "delay_s": state.spec.delay_s,
        "loss": state.spec.loss,
        # with what a full link of that rate has on its way, there and back
        "queue_bytes": queue_bytes(state.spec.rate_bits) + round(state.spec.rate_bits / 8 * 2 * state.spec.delay_s),
        "cut_file": str(cut_file(folder.path)),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "nodectl.lab.wire"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder.path / "wire.log").open("wb"),
        pass_fds=descriptors,
        start_new_session=True,
        cwd="/",
        env={"PATH": PATH, "PYTHONPATH": str(Path(nodectl.__file__).parents[1])},
    )
    state = folder.write(replace(state, wire=Process.of(process.pid)))
    with process.stdin as task_pipe, process.stdout as ready_pipe:  # type: ignore[union-attr]  # both are pipes
        task_pipe.write(json.dumps(task).encode())
        task_pipe.close()
        answer = ready_pipe.read(len(READY))
    if answer != READY:
        raise LabError(f"the user-space link did not start: see {folder.path / 'wire.log'}")
    forbid_ipv6(folder.uplink)
    uplink = folder.uplink
    ip_batch([f"addr add {addresses[-1]}/{PREFIX_BITS} dev {uplink}", f"link set {uplink} up"])
    return state
