"""The lab's network: free addresses, the switch in a namespace of its own, the cables, and their shaping by tc."""

import fcntl
import ipaddress
import json
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nodectl.common.paths import state_dir
from nodectl.common.process import interruptible
from nodectl.errors import LabError, NodectlError, UsageError
from nodectl.lab.base import PATH
from nodectl.lab.spec import LabSpec, show_delay, show_rate
from nodectl.lab.state import LabFolder, LabState, LinkKind, locked
from nodectl.lab.syscalls import CLONE_NEWNET, bind, inside_network, leaving, unshare
from nodectl.model.host import Host

PREFIX_BITS = 16
_BRIDGE, _TRUNK = "switch", "uplink"
_HOSTS_A_BLOCK = 250
# locked, it keeps labs of other folders from taking the same subnet meanwhile
ADDRESSES_LOCK = Path("/run")

_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSARP = 0x8914, 0x8916, 0x891C, 0x8955
_IFF_UP, _IFF_RUNNING, _ATF_COM, _ATF_PERM, _ARPHRD_ETHER = 1, 0x40, 2, 4, 1

QUANTUM_BYTES = 60_000
_MAX_BURST_BYTES = 10**6  # 1 MB: htb then holds 95 % of 1 Gbit/s and more
_BURST_S, _QUEUE_S = 0.008, 0.05
_MIN_BURST_BYTES, _MIN_QUEUE_BYTES = 2 * 65_536, 4 * 65_536  # a few of the kernel's 64 KiB super-packets
_NETEM_PACKETS = 200_000
_MAX_NETEM_PACKETS = 10**7


def free_subnet() -> str:
    """Return a private /16 that no route of this machine touches; hold ADDRESSES_LOCK until there is a route to it."""
    shown = ip(["-json", "-4", "route", "show", "table", "all"])
    destinations = [route["dst"] for route in json.loads(shown or "[]") if route["dst"] != "default"]
    taken = [ipaddress.ip_network(destination, strict=False) for destination in destinations]
    for second in (77, *range(64, 128), *range(200, 250)):
        candidate = ipaddress.ip_network(f"10.{second}.0.0/{PREFIX_BITS}")
        if not any(candidate.overlaps(other) for other in taken if isinstance(other, ipaddress.IPv4Network)):
            return str(candidate)
    raise LabError("no /16 of 10.0.0.0/8 is free of this machine's routes", "free one, for example 10.77.0.0/16")


def host_address(subnet: str, index: int) -> str:
    """Return the address of the host number `index` (from 0); no last byte is 0 or 255."""
    block, place = divmod(index, _HOSTS_A_BLOCK)
    return str(ipaddress.ip_network(subnet).network_address + block * 256 + place + 1)


def operator_address(subnet: str) -> str:
    """Return the machine's own address in the lab."""
    return str(ipaddress.ip_network(subnet).network_address + 255 * 256 + 254)


def mac_of(address: str) -> str:
    """Return a fixed, locally administered MAC for `address`: a host that comes back is known at once."""
    return "02:4e:" + ":".join(f"{int(byte):02x}" for byte in address.split("."))


def make_switch(folder: LabFolder) -> None:
    """Make an empty network namespace that lasts as long as `folder.switch` is mounted."""
    folder.switch.touch()
    with leaving(CLONE_NEWNET):
        unshare(CLONE_NEWNET)
        bind("/proc/self/ns/net", str(folder.switch))
        forbid_ipv6("all", "default")


def join_machine(folder: LabFolder, subnet: str) -> None:
    """Make the bridge, and the one cable between it and the machine's own network."""
    with inside_network(folder.switch):
        ip_batch([f"link add {_BRIDGE} type bridge mcast_snooping 0", f"link set {_BRIDGE} up", "link set lo up"])
    address = operator_address(subnet)
    ip(["link", "add", folder.uplink, "address", mac_of(address), "type", "veth", "peer", "name", _TRUNK])
    forbid_ipv6(folder.uplink)
    ip(["link", "set", _TRUNK, "netns", str(folder.switch)])
    with inside_network(folder.switch):
        ip_batch([f"link set {_TRUNK} master {_BRIDGE} up"])
    ip_batch([f"addr add {address}/{PREFIX_BITS} dev {folder.uplink}", f"link set {folder.uplink} up"])


def plug_in(folder: LabFolder, state: LabState) -> None:
    """One cable a host, shaped at the switch's end; the hosts' namespaces must stand."""
    lines: list[str] = []
    shaping: list[str] = []
    for index, host in enumerate(state.hosts):
        pid = host.process.pid if host.process else 0
        port = port_name(index)
        lines += [
            f"link add {port} type veth peer name eth0 address {host.mac} netns {pid}",
            f"link set {port} master {_BRIDGE} up",
        ]
        shaping += port_shaping(port, state.spec, state.link)
    with inside_network(folder.switch):
        ip_batch(lines)
        run_tc(shaping)
    # fixed entries: the kernel's table of neighbours (1,024, all namespaces together) is not for a big lab
    ip_batch([f"neigh replace {h.address} lladdr {h.mac} dev {folder.uplink} nud permanent" for h in state.hosts])


def port_name(index: int) -> str:
    """Return the switch's end of the cable of the host number `index`."""
    return f"p{index}"


def configure_interface(address: str, neighbour: tuple[str, str] | None) -> None:
    """Bring `lo` and `eth0` up in this network namespace, without a program; `neighbour` is (address, MAC)."""
    forbid_ipv6("all", "default")
    netmask = str(ipaddress.ip_network(f"0.0.0.0/{PREFIX_BITS}").netmask)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP | _IFF_RUNNING))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s8x", b"eth0", _sockaddr(address)))
        fcntl.ioctl(control, _SIOCSIFNETMASK, struct.pack("16s16s8x", b"eth0", _sockaddr(netmask)))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"eth0", _IFF_UP | _IFF_RUNNING))
        if neighbour:
            peer, mac = neighbour
            hardware = struct.pack("=H14s", _ARPHRD_ETHER, bytes.fromhex(mac.replace(":", "")))
            entry = struct.pack("16s16si16s16s", _sockaddr(peer), hardware, _ATF_COM | _ATF_PERM, b"", b"eth0")
            fcntl.ioctl(control, _SIOCSARP, entry)


def forbid_ipv6(*interfaces: str) -> None:
    """Switch IPv6 off on these interfaces: the lab has no address that nobody asked for."""
    for interface in interfaces:
        switch = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
        if switch.exists():
            switch.write_text("1")


def ip(arguments: Sequence[str]) -> str:
    """Run one `ip` command; its standard output."""
    return _run(["ip", *arguments], "")


def ip_batch(lines: Sequence[str]) -> None:
    """Run many `ip` commands in one process."""
    _run(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def _sockaddr(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))


def _run(
    argv: list[str],
    text: str,
    remedy: str = "`nodectl lab down`, then try again",
    env: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(argv, input=text, text=True, capture_output=True, env=env, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()[:500]}", remedy)
    return done.stdout


def kernel_has_netem(namespace: Path) -> bool:
    """Try it, in the network namespace if nobody is hurt."""
    with inside_network(namespace):
        command = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        tried = subprocess.run(command, capture_output=True, check=False)
        if tried.returncode == 0:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True, check=False)
    return tried.returncode == 0


def run_tc(lines: Sequence[str]) -> None:
    """Let one `tc` do all the lines, in the network namespace of now; LabError with what it refused."""
    if lines:
        remedy = "`nodectl lab down`; it needs sch_htb and cls_u32"
        _run(["tc", "-batch", "-"], "\n".join(lines) + "\n", remedy, env={"PATH": PATH})


def host_shaping(spec: LabSpec) -> tuple[str, ...]:
    """Return what the host's own end sends: never above the rate."""
    return rate_shaping("eth0", spec.rate_bits) if spec.rate_bits else ()


def port_shaping(port: str, spec: LabSpec, link: LinkKind) -> tuple[str, ...]:
    """Return what the switch sends to the host: the rate, and one way of the delay and loss."""
    lines = rate_shaping(port, spec.rate_bits) if spec.rate_bits else ()
    if link != "netem":
        return lines
    in_flight = (spec.rate_bits or 10**11) / 8 * spec.delay_s / 1500
    netem = f"netem limit {min(_MAX_NETEM_PACKETS, max(_NETEM_PACKETS, round(2 * in_flight)))}"
    netem += f" delay {show_delay(spec.delay_s)}" if spec.delay_s else ""
    netem += f" loss {100 * spec.loss:g}%" if spec.loss else ""
    place = "parent 1:10 handle 10:" if lines else "root handle 10:"
    return (*lines[:2], f"qdisc add dev {port} {place} {netem}")


def queue_bytes(rate_bits: int) -> int:
    """Return how much a full link keeps waiting: 50 ms of it."""
    return max(_MIN_QUEUE_BYTES, round(rate_bits / 8 * _QUEUE_S))


def rate_shaping(interface: str, rate_bits: int) -> tuple[str, ...]:
    """All that leaves by the interface in class 1:10, at that rate, with its queue."""
    rate = show_rate(rate_bits)
    burst_bytes = max(_MIN_BURST_BYTES, min(_MAX_BURST_BYTES, round(rate_bits / 8 * _BURST_S)))
    htb = f"htb rate {rate} ceil {rate} burst {burst_bytes} cburst {burst_bytes} quantum {QUANTUM_BYTES}"
    return (
        f"qdisc add dev {interface} root handle 1: htb default 10",
        f"class add dev {interface} parent 1: classid 1:10 {htb}",
        f"qdisc add dev {interface} parent 1:10 handle 10: bfifo limit {queue_bytes(rate_bits)}",
    )


# faults that live in a port's shaping, which a new rate would undo
_IN_SHAPING = {"loss", "mtu-hole", "slow-link"}
# in which an impatient second signal does not keep the links from their former rate
_RESTORE_S = 30.0


def lab_of(hosts: Sequence[Host]) -> LabFolder | None:
    """Return the operator's lab that has these hosts, by name and address; None if no lab that is up has them."""
    wanted = {(host.name, host.address) for host in hosts}
    for journal in sorted((state_dir() / "lab").glob("*/lab.json")):
        folder = LabFolder(journal.parent.resolve())
        state = folder.read()
        if state and state.complete and wanted <= {(host.name, host.address) for host in state.hosts}:
            return folder
    return None


def set_rate(folder: LabFolder, rate_bits: int) -> None:
    """Shape every link of the lab again, each way; 0 takes the shaping away."""
    with locked():
        state = folder.running()
        _refuse_new_rate(folder, state)
        spec = replace(state.spec, rate_bits=rate_bits)
        for host in state.hosts:
            if host.process and host.up:
                with inside_network(f"/proc/{host.process.pid}/ns/net"):
                    run_tc([*_cleared("eth0"), *host_shaping(spec)])
        ports = [port_name(index) for index in range(len(state.hosts))]
        with inside_network(folder.switch):
            run_tc([line for port in ports for line in (*_cleared(port), *port_shaping(port, spec, state.link))])
        folder.write(replace(state, spec=spec))


@contextmanager
def shaping(folder: LabFolder) -> Iterator[Callable[[int], None]]:
    """Give what sets the rate; at the end, however it comes, the former rate is set again."""
    state = folder.running()
    _refuse_new_rate(folder, state)
    before, given = state.spec.rate_bits, list[int]()

    def put_on(rate_bits: int) -> None:
        given.append(rate_bits)
        set_rate(folder, rate_bits)

    with interruptible(deaf_s=_RESTORE_S):
        try:
            yield put_on
        finally:
            if given:
                _restore_rate(folder, before)


def described(rate_bits: int) -> str:
    """Return `1gbit`, or that there is none."""
    return show_rate(rate_bits) if rate_bits else "unlimited"


def _restore_rate(folder: LabFolder, before: int) -> None:
    now, name = described(folder.running().spec.rate_bits), folder.name
    try:
        set_rate(folder, before)
    except NodectlError as error:
        message = f"the links of the lab '{name}' keep {now}: {error.message}"
        raise LabError(message, f"{error.remedy}; `nodectl lab down --name {name}` and up again") from error


def _refuse_new_rate(folder: LabFolder, state: LabState) -> None:
    if state.link == "wire":
        message = f"the rate of the lab '{folder.name}' is fixed: a process carries its links (--delay or --loss)"
        raise UsageError(message, "bring up a lab without them")
    broken = sorted(f"{fault.host}: {fault.kind}" for fault in state.faults if fault.kind in _IN_SHAPING)
    if broken:
        message = f"links of the lab '{folder.name}' have faults: {', '.join(broken)}"
        raise UsageError(message, f"run `nodectl lab heal --name {folder.name}`")


def _cleared(interface: str) -> tuple[str, ...]:
    """Whatever queues there, it is gone: one that can always be put in its place, and is then taken away."""
    return (f"qdisc replace dev {interface} root handle f0: pfifo", f"qdisc del dev {interface} root")
