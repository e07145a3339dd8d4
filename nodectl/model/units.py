"""Which way a unit points: less of a time is better, more of a rate is."""

_TIMES = frozenset(["s", "ms", "us", "µs", "ns", "min"])
_RATES = frozenset(["IOPS", "Mpps", "MHz", "GHz", "bps", "Mbps", "Gbps"])


def lower_is_better(unit: str) -> bool | None:
    """None for a unit that is not known: nobody can then say which of two values is the better one."""
    if unit in _TIMES:
        return True
    return False if unit in _RATES or unit.endswith("/s") else None
