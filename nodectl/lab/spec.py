"""What a lab is asked to be: its size, its links and its disks, read from what the operator typed."""

import re
from dataclasses import dataclass, replace

from nodectl.common import units
from nodectl.common.counting import counted
from nodectl.errors import UsageError

MAX_HOSTS = 1000  # a Linux bridge has 1,024 ports
MAX_WIRED_HOSTS = 128  # the user-space link is one process

_RATE_UNITS = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MIN_DISK_BYTES = 64 * units.MIB


@dataclass(frozen=True, slots=True)
class LabSpec:
    """One lab; `rate_bits` 0 is unshaped, `delay_s` is one way, `loss` a share of packets.

    `disk_bytes` 0 is unbounded; None is what this machine allows, and stands in no lab that is up. `recorded` names the
    recording in which the hosts are dressed.
    """

    hosts: int = 4
    rate_bits: int = 0
    delay_s: float = 0.0
    loss: float = 0.0
    disk_bytes: int | None = None
    recorded: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise UsageError(f"a lab has 1 to {MAX_HOSTS} hosts, not {self.hosts}", "choose another -n")

    @property
    def impaired(self) -> bool:
        """The links have a delay or a loss."""
        return self.delay_s > 0 or self.loss > 0

    def fits(self, other: "LabSpec") -> bool:
        """Return whether a lab of the spec `other` is what this one asks for."""
        return self in (other, replace(other, disk_bytes=None))

    def names(self) -> tuple[str, ...]:
        """`node01` …, as wide as the last one needs."""
        width = max(2, len(str(self.hosts)))
        return tuple(f"node{index:0{width}d}" for index in range(1, self.hosts + 1))

    def described(self) -> str:
        """Return the lab in one line for people, `4 hosts, rate 1gbit`."""
        parts = [counted(self.hosts, "host")]
        parts += [f"rate {show_rate(self.rate_bits)}"] if self.rate_bits else []
        parts += [f"delay {show_delay(self.delay_s)}"] if self.delay_s else []
        parts += [f"loss {100 * self.loss:g}%"] if self.loss else []
        parts += [f"disk {self.disk_bytes / units.GIB:g}G"] if self.disk_bytes else []
        parts += [f"recorded {self.recorded}"] if self.recorded else []
        return ", ".join(parts)


def parse_rate(text: str) -> int:
    """Return `1gbit`, `100Mbit`, `2.5g` → bits per second."""
    number, unit = _split(text, "rate", "1gbit or 100mbit")
    unit = unit.removesuffix("/s")
    unit = unit if unit.endswith("bit") or not unit else f"{unit}bit"
    if unit not in _RATE_UNITS:
        raise UsageError(f"rate '{text}' has an unknown unit", f"use one of {', '.join(filter(None, _RATE_UNITS))}")
    rate_bits = round(number * _RATE_UNITS[unit])
    if not 10**5 <= rate_bits <= 10**12:
        raise UsageError(f"rate '{text}' is outside 100kbit to 1000gbit", "give a unit, as in 1gbit")
    return rate_bits


def parse_delay(text: str) -> float:
    """Return `10ms`, `250us`, `1s` → seconds."""
    number, unit = _split(text, "delay", "10ms or 250us")
    if unit not in _TIME_UNITS:
        raise UsageError(f"delay '{text}' needs a unit", f"use one of {', '.join(_TIME_UNITS)}, as in 10ms")
    delay_s = number * _TIME_UNITS[unit]
    if delay_s > 10:
        raise UsageError(f"delay '{text}' is above 10s", "give a smaller one")
    return delay_s


def parse_loss(text: str) -> float:
    """`0.1%` or `0.001` → a share between 0 and 1."""
    number, unit = _split(text, "loss", "0.1%")
    if unit not in ("", "%"):
        raise UsageError(f"loss '{text}' is not a percentage", "write it as 0.1%")
    share = number / 100 if unit == "%" else number
    if share >= 1:
        raise UsageError(f"loss '{text}' leaves no packet", "write it as 0.1%")
    return share


def parse_size(text: str) -> int:
    """Return `4G`, `512MiB` → bytes (binary units); `none` → 0."""
    if text.strip().lower() == "none":
        return 0
    size_bytes = units.parse_size(text)
    if size_bytes is None:
        _split(text, "size", "4G or 512M")  # refuses what is no number
        raise UsageError(f"size '{text}' has an unknown unit", "use M, G or T, as in 4G")
    if size_bytes < _MIN_DISK_BYTES:
        raise UsageError(f"size '{text}' is below 64M", "a host needs room for its logs and its jobs")
    return size_bytes


def show_rate(rate_bits: int) -> str:
    """Return `1gbit`; the largest unit that leaves a short number, as `tc` reads it."""
    for unit in ("gbit", "mbit", "kbit"):
        if rate_bits >= _RATE_UNITS[unit]:
            return f"{rate_bits / _RATE_UNITS[unit]:g}{unit}"
    return f"{rate_bits}bit"


def show_delay(delay_s: float) -> str:
    """`10ms` or `250us`, as `tc` reads it."""
    return f"{delay_s * 1e3:g}ms" if delay_s >= 1e-3 else f"{delay_s * 1e6:g}us"


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z%/]*)\s*", text.lower())
    if not match:
        raise UsageError(f"'{text}' is not a {what}", f"write it as {example}")
    return float(match[1]), match[2]
