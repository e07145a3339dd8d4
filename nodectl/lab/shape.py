"""The words in which `tc` is told a link's rate, delay and loss, and what this machine's kernel can do of them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nodectl.errors import LabError
from nodectl.lab.base import PATH
from nodectl.lab.spec import LabSpec, show_delay, show_rate
from nodectl.lab.syscalls import inside_network

QUANTUM_BYTES = 60_000
_MAX_BURST_BYTES = 10**6  # 1 MB: htb then holds 95 % of 1 Gbit/s and more
_BURST_S, _QUEUE_S = 0.008, 0.05
_MIN_BURST_BYTES, _MIN_QUEUE_BYTES = 2 * 65_536, 4 * 65_536  # a few of the kernel's 64 KiB super-packets
_NETEM_PACKETS = 200_000
_MAX_NETEM_PACKETS = 10**7


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
        text = "\n".join(lines) + "\n"
        done = subprocess.run(
            ["tc", "-batch", "-"], input=text, capture_output=True, text=True, env={"PATH": PATH}, check=False
        )
        if done.returncode != 0:
            raise LabError(f"tc: {done.stderr.strip()[:300]}", "`nodectl lab down`; it needs sch_htb and cls_u32")


def host_shaping(spec: LabSpec) -> tuple[str, ...]:
    """Return what the host's own end sends: never above the rate."""
    return rate_shaping("eth0", spec.rate_bits) if spec.rate_bits else ()


def port_shaping(port: str, spec: LabSpec, link: Literal["veth", "netem", "wire"]) -> tuple[str, ...]:
    """Return what the switch sends to the host: the rate, and one way of the delay and loss."""
    lines = rate_shaping(port, spec.rate_bits) if spec.rate_bits else ()
    if link != "netem":
        return lines
    netem = f"netem limit {_netem_limit(spec)}"
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


def _netem_limit(spec: LabSpec) -> int:
    in_flight = (spec.rate_bits or 10**11) / 8 * spec.delay_s / 1500
    return min(_MAX_NETEM_PACKETS, max(_NETEM_PACKETS, round(2 * in_flight)))
