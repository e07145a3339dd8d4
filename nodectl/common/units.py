"""Sizes and numbers, read and shown; and which way a unit points: less of a time is better, more of a rate is."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = (1 << 10 * power for power in range(1, 5))
_SIZE_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_SHOWN = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
# units of one kind, ascending, each with how many of it make one of the next
_CHAINS = (
    (("ns", 1000), ("us", 1000), ("ms", 1000), ("s", 60)),
    (("kbit/s", 1000), ("Mbit/s", 1000), ("Gbit/s", 1000), ("Tbit/s", 1000)),
    (("kb/s", 1000), ("Mb/s", 1000), ("Gb/s", 1000), ("Tb/s", 1000)),
    (("kB/s", 1000), ("MB/s", 1000), ("GB/s", 1000), ("TB/s", 1000)),
    (("KiB/s", 1024), ("MiB/s", 1024), ("GiB/s", 1024), ("TiB/s", 1024)),
    (("GFLOPS", 1000), ("TFLOPS", 1000), ("PFLOPS", 1000)),
)
_TIMES = frozenset(["s", "ms", "us", "µs", "ns", "min"])
_RATES = frozenset(["Mpps", "MHz", "GHz", "bps", "Mbps", "Gbps"])


def parse_size(text: str) -> int | None:
    """Return `4096`, `64MiB`, `64M` or `1.5 GiB` in bytes, always with binary units; None for any other text."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    number, unit_bytes = match[1], _SIZE_UNITS.get((match[2] or "").upper(), 1)
    return round(float(number) * unit_bytes) if "." in number else int(number) * unit_bytes


def format_size(size_bytes: int) -> str:
    """`64 MiB` in the largest unit that divides it: exact, and `1500 B` if none does."""
    for unit_bytes, unit in _SHOWN:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def digits(value: float) -> str:
    """Three digits that count, and all of a whole part: `0.0123`, `4.20`, `391`, `20,836`."""
    size = abs(value)
    if size == 0:
        return "0"
    # 9.996 would be written 10.00
    for least, decimals in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if size >= least:
            return f"{value:,.{decimals}f}"
    return f"{value:.3g}"


def readable(value: float, unit: str) -> tuple[float, str]:
    """Convert to the unit of its kind in which the value is 1 to 1000, if there is one: 20.8 ms for 20836 us."""
    chain = next((chain for chain in _CHAINS if unit in dict(chain)), ())
    names = [name for name, _ in chain]
    if not names or value == 0:
        return value, unit
    place = names.index(unit)
    while place + 1 < len(names) and abs(value) >= chain[place][1]:
        value, place = value / chain[place][1], place + 1
    while place and abs(value) < 1:
        value, place = value * chain[place - 1][1], place - 1
    return value, names[place]


def format_value(value: float, unit: str) -> str:
    """`20.8 ms` for 20836 us: three digits, in the unit of its kind that keeps them short."""
    shown, name = readable(value, unit)
    return f"{digits(shown)} {name}"


def lower_is_better(unit: str) -> bool | None:
    """Return whether the smaller of two values in this unit is the better one; None for a unit that is not known."""
    if unit in _TIMES:
        return True
    return False if unit in _RATES or unit.endswith("/s") else None


def time_text(time_s: float) -> str:
    """Return a time as text, within some percent: `45 s`, `2 min 10 s`, `12 min`, `2 h 5 min`."""
    if time_s < 99.5:
        return f"{time_s:.0f} s"
    if time_s < 600:
        minutes, seconds = divmod(10 * round(time_s / 10), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(time_s / 60), 60)
    return f"{hours} h {minutes} min" if hours and minutes else f"{hours} h" if hours else f"{minutes} min"
