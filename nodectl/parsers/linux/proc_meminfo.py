"""Reads /proc/meminfo."""

from nodectl.errors import ParseError


def parse_meminfo(text: str) -> dict[str, int]:
    """MiB (2^20 bytes) by field name; fields without a unit are counts and left out."""
    values_mib: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or not words or not words[0].isdigit():
            raise ParseError(f"/proc/meminfo line {number}: {line!r}")
        if words[1:] == ["kB"]:
            values_mib[key] = int(words[0]) // 1024
    if "MemTotal" not in values_mib:
        raise ParseError("/proc/meminfo names no MemTotal")
    return values_mib
