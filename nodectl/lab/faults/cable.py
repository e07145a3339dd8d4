"""Faults of a host's cable: cut, of another MTU, slow, losing packets, or swallowing large ones."""

from __future__ import annotations

import json
import subprocess

from nodectl.errors import UsageError
from nodectl.lab.faults import Fault, Scene
from nodectl.lab.network import (
    QUANTUM_BYTES,
    ip_batch,
    operator_address,
    port_name,
    port_shaping,
    rate_shaping,
    run_tc,
)
from nodectl.lab.spec import show_rate
from nodectl.lab.syscalls import inside_network
from nodectl.lab.wiring import set_carrier

_SLOW_BITS, _FAST_BITS = 50 * 10**6, 100 * 10**9
_SHORT_MTU = "1400"
_LENGTH_BITS = [1 << number for number in range(10, 16)]
_SHAPING = ("loss", "mtu-hole", "slow-link")


def _set_carrier(scene: Scene, *, up: bool) -> None:
    """Switch the switch's end: the host sees a cable without a signal, and can do nothing about it."""
    if scene.state.link == "wire":
        set_carrier(scene.folder, scene.state, scene.host, up=up)
        return
    with inside_network(scene.folder.switch):
        ip_batch([f"link set {_port(scene)} {'up' if up else 'down'}"])


def _set_mtu(scene: Scene, mtu: str) -> None:
    scene.run(["ip", "link", "set", "eth0", "mtu", mtu])


def _settle(scene: Scene, _: str) -> None:
    """Shape the switch's traffic to the host by its present faults; without any, as the lab shapes all links."""
    port, kinds = _port(scene), set(scene.kinds()) & set(_SHAPING)
    if scene.state.link != "veth":
        if not kinds:
            return
        raise UsageError(
            f"the links of this lab are shaped already ({scene.state.link})", "bring it up without --delay and --loss"
        )
    spec = scene.state.spec
    lines = _impaired(port, kinds, spec.rate_bits, operator_address(scene.state.subnet))
    with inside_network(scene.folder.switch):
        # there is none where the lab has no rate
        subprocess.run(["tc", "qdisc", "del", "dev", port, "root"], capture_output=True, check=False)
        run_tc(lines if kinds else port_shaping(port, spec, scene.state.link))


def _impaired(port: str, kinds: set[str], rate_bits: int, operator: str) -> tuple[str, ...]:
    """Return tc's lines: a class for what passes, one without a queue for what is lost; the operator's packets pass."""
    rate_bits = min(rate_bits or _FAST_BITS, _SLOW_BITS if "slow-link" in kinds else _FAST_BITS)
    lines = [
        *rate_shaping(port, rate_bits),
        f"class add dev {port} parent 1: classid 1:20 htb rate {show_rate(_FAST_BITS)} quantum {QUANTUM_BYTES}",
        f"class add dev {port} parent 1: classid 1:99 htb rate 1mbit quantum {QUANTUM_BYTES}",
        f"qdisc add dev {port} parent 1:99 handle 99: bfifo limit 1",
    ]
    base = f"filter add dev {port} parent 1: protocol ip"
    lines.append(f"{base} prio 1 u32 match ip src {operator}/32 flowid 1:20")
    if "loss" in kinds:  # by the low bits of IP's running number: one in 32, and another one when it is sent again
        lines.append(f"{base} prio 2 u32 match u16 0x0000 0x001f at 4 flowid 1:99")
    if "mtu-hole" in kinds:  # any of these bits of the length: 1,024 bytes or more
        lines += [f"{base} prio 3 u32 match u16 {bit:#06x} {bit:#06x} at 2 flowid 1:99" for bit in _LENGTH_BITS]
    return tuple(lines)


def _port(scene: Scene) -> str:
    return port_name([host.name for host in scene.state.hosts].index(scene.host.name))


def _shaped(name: str, about: str) -> Fault:
    return Fault(name, about, ("tcp",), happens=_settle, heal=_settle, load=True)


FAULTS = (
    Fault(
        "link-down",
        "the cable has no signal",
        ("reach",),
        happens=lambda scene, _: _set_carrier(scene, up=False),
        heal=lambda scene, _: _set_carrier(scene, up=True),
    ),
    Fault(
        "mtu",
        f"the interface has an MTU of {_SHORT_MTU}",
        ("fleet_mtu",),
        happens=lambda scene, _: _set_mtu(scene, _SHORT_MTU),
        heal=_set_mtu,
        remember=lambda scene: str(json.loads(scene.run(["ip", "-json", "link", "show", "eth0"]))[0]["mtu"]),
    ),
    _shaped("loss", "one packet in 32 to the host is lost"),
    _shaped("slow-link", "the host receives 50 Mbit/s"),
    _shaped("mtu-hole", "packets of 1,024 bytes and more to the host vanish"),
)
