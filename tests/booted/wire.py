"""The systems' own network: a switch in a namespace of its own, one cable to this machine, none to anywhere else."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from nodectl.lab.network import ADDRESSES_LOCK, PREFIX_BITS, free_subnet, host_address, ip, mac_of, operator_address
from nodectl.lab.state import locked
from tests.booted.journal import Journal

# what a kernel of its own starts with; a namespace would inherit this machine's, which may be tuned already
KERNEL_DEFAULTS = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}


@dataclass(frozen=True, slots=True)
class Switch:
    """A bridge named `switch` in the namespace `name`."""

    name: str
    subnet: str
    journal: Journal

    def address(self, index: int) -> str:
        """Of the system number `index`, from 0."""
        return host_address(self.subnet, index)

    def mac(self, index: int) -> str:
        """The same at each boot, so that nobody's table of neighbours goes stale."""
        return mac_of(self.address(index))

    def plug_container(self, index: int) -> str:
        """A fresh network namespace, as after power-on, with `eth0` on the switch; its name."""
        name, port = f"{self.name}-{index}", f"p{index}"
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self.journal.note("namespace", name)
        ip(["netns", "add", name])
        peer = ["type", "veth", "peer", "name", port, "netns", self.name]
        ip(["link", "add", "eth0", "address", self.mac(index), "netns", name, *peer])
        ip(["-n", self.name, "link", "set", port, "master", "switch", "up"])
        ip(["-n", name, "link", "set", "lo", "up"])
        settings = [f"{key}={value}" for key, value in KERNEL_DEFAULTS.items()]
        subprocess.run(["ip", "netns", "exec", name, "sysctl", "--quiet", "--write", *settings], check=True)
        return name

    def plug_machine(self, index: int) -> str:
        """A tap on the switch, inside the switch's namespace; its name."""
        tap = f"t{index}"
        ip(["-n", self.name, "tuntap", "add", tap, "mode", "tap"])
        ip(["-n", self.name, "link", "set", tap, "master", "switch", "up"])
        return tap


def make_switch(journal: Journal, name: str) -> Switch:
    """The switch and the cable to this machine, on a subnet that no route of it touches."""
    with locked(ADDRESSES_LOCK):
        subnet = free_subnet()
        journal.note("namespace", name)
        journal.note("link", name)
        ip(["netns", "add", name])
        ip(["-n", name, "link", "add", "switch", "type", "bridge", "mcast_snooping", "0"])
        ip(["-n", name, "link", "set", "switch", "up"])
        operator = operator_address(subnet)
        cable = ["address", mac_of(operator), "type", "veth", "peer", "name", "uplink", "netns", name]
        ip(["link", "add", name, *cable])
        ip(["-n", name, "link", "set", "uplink", "master", "switch", "up"])
        ip(["address", "add", f"{operator}/{PREFIX_BITS}", "dev", name])
        ip(["link", "set", name, "up"])
    return Switch(name, subnet, journal)
