"""Sizes and numbers, read and shown; and which way a unit points: less of a time is better, more of a rate is."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = (1 << 10 * power for power in range(1, 5))
_SIZE_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_SHOWN = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_TIMES = frozenset(["s", "ms", "us", "µs", "ns", "min"])
_RATES = frozenset(["IOPS", "Mpps", "MHz", "GHz", "bps", "Mbps", "Gbps"])


def parse_size(text: str) -> int | None:
    """`4096`, `64MiB`, `64M` or `1.5 GiB` in bytes, always with binary units; None for any other text."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    number, unit_bytes = match[1], _SIZE_UNITS.get((match[2] or "").upper(), 1)
    return round(float(number) * unit_bytes) if "." in number else int(number) * unit_bytes


def format_size(size_bytes: int) -> str:
    """`64 MiB` in the largest unit that divides it: exact, and `1500 B` where none does."""
    for unit_bytes, unit in _SHOWN:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def format_size_rounded(size_bytes: int) -> str:
    """`1.46 KiB`: three digits in the largest unit that it reaches."""
    for unit_bytes, unit in _SHOWN:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.3g} {unit}"
    return f"{size_bytes} B"


def format_number(value: float) -> str:
    """Three decimals, and three digits where those would be noughts."""
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def lower_is_better(unit: str) -> bool | None:
    """Whether the smaller of two values in this unit is the better one; None for a unit that is not known."""
    if unit in _TIMES:
        return True
    return False if unit in _RATES or unit.endswith("/s") else None
