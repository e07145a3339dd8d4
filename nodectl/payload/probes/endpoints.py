"""Says where this host takes part in a probe: its address, interface, MTU, a free port, and the tools it has.

One JSON line; Python 3.8, standard library.
"""

import argparse
import errno
import fcntl
import ipaddress
import os
import re
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from ..common import libraries, machine, program
from ..common.frames import say
from ..common.sockets import family

SIOCGIFADDR = 0x8915
SIOCGIFMTU = 0x8921
NET = Path("/sys/class/net")


def ioctl(request: int, interface: str) -> Optional[bytes]:
    """Return the kernel's answer about an interface, None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            return fcntl.ioctl(sock.fileno(), request, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None


def addresses() -> List[Tuple[str, str]]:
    """(interface, address) of this host, IPv4 first; link-local IPv6 is left out."""
    held = []
    for _, name in socket.if_nameindex():
        answer = ioctl(SIOCGIFADDR, name)
        if answer:
            held.append((name, socket.inet_ntoa(answer[20:24])))
    try:
        with Path("/proc/net/if_inet6").open() as table:
            for line in table:
                raw, _, _, scope, _, name = line.split()
                if scope != "20":
                    held.append((name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))))
    except OSError:
        pass
    return held


def is_local(address: str) -> bool:
    """Return whether a socket can be bound to it."""
    with socket.socket(family(address), socket.SOCK_STREAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return False
            raise
    return True


def is_loopback(address: str) -> bool:
    """Nobody else reaches it."""
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def resolve(name: str) -> List[str]:
    """Addresses of a name as this host sees them, or the address itself."""
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def choose(address: str, interface: Optional[str]) -> Tuple[str, str]:
    """(interface, address): of the interface asked for, else the address at which this host is reached."""
    have = addresses()
    if interface:
        for name, local in have:
            if name == interface:
                return name, local
        raise RuntimeError(
            "no interface %s with an address here; it has %s" % (interface, ", ".join(sorted({n for n, _ in have})))
        )
    reached = os.environ.get("SSH_CONNECTION", "").split()
    candidates = resolve(address) + reached[2:3]
    if reached[2:3] and not is_loopback(reached[2]):
        # a host that knows its own name as 127.0.1.1 is reached from elsewhere all the same
        candidates = [local for local in candidates if not is_loopback(local)]
    for local in candidates:
        if is_local(local):
            named = [name for name, local_address in have if local_address == local]
            return (named[0] if named else ""), local
    raise RuntimeError("none of %s is an address of this host: name the interface" % (", ".join(candidates) or address))


def speed_mbit(interface: str) -> Optional[int]:
    """Return the rate of a real device, or a bond of them; a virtual interface tells one that means nothing."""
    place = NET / interface
    if not interface or not ((place / "device").exists() or (place / "bonding").exists()):
        return None
    speed = machine.number(place / "speed")
    return speed if speed is not None and speed > 0 else None


def free_port(address: str) -> int:
    """Return a port that nobody holds now."""
    with socket.socket(family(address), socket.SOCK_STREAM) as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def iperf3_version() -> Optional[str]:
    """Return None if it is not installed."""
    program = shutil.which("iperf3")
    if not program:
        return None
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10).stdout
    match = re.search(rb"iperf (\S+)", text)
    return match.group(1).decode() if match else "unknown"


def look(options: argparse.Namespace) -> None:
    """Say what a probe's plan needs to know of this host; RuntimeError if it has no such address."""
    interface, address = choose(options.address, options.interface)
    mtu = ioctl(SIOCGIFMTU, interface) if interface else None
    say(
        event="endpoint",
        address=address,
        interface=interface,
        mtu=struct.unpack_from("i", mtu, 16)[0] if mtu else None,
        free_port=free_port(address),
        iperf3=iperf3_version(),
        torch=libraries.installed(Path(options.venv), "torch") or None,
        machine=machine.boot_id(),
        speed_mbit=speed_mbit(interface),
        gpus=len(list(Path("/proc/driver/nvidia/gpus").glob("*"))),
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Look, for an address by which others call this host."""
    parser = argparse.ArgumentParser()
    parser.set_defaults(run=look)
    parser.add_argument("--address", required=True)
    parser.add_argument("--interface")
    parser.add_argument("--venv", required=True)
    return program.run(parser, argv, subprocess.SubprocessError)
