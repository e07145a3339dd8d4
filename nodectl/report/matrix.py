"""Measurements between pairs of hosts, as a matrix where it fits the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from textwrap import wrap

from nodectl.common.units import digits, readable
from nodectl.model.measurement import Measurement
from nodectl.report.series import Series
from nodectl.report.table import aligned

LEGEND = "* measured again: the later value"
_LEAST_HOSTS = 3
# of the cells: a ring of many hosts is no matrix
_LEAST_FILLED = 0.5


def matrix(one: Series, width: int) -> str:
    """Senders down, receivers across, a cell a path; empty where it is no matrix, or wider than `width`."""
    hosts = one.hosts
    cells = {tuple(member.hosts): member for member in one.members if len(member.hosts) == 2}
    possible = len(hosts) * (len(hosts) - 1)
    both_ways = any(member.direction for member in one.members)
    if len(hosts) < _LEAST_HOSTS or len(cells) < len(one.members):
        return ""
    if len(cells) < _LEAST_FILLED * (possible if both_ways else possible / 2):
        return ""
    factor, unit = _scale(one)
    texts = {place: _cell(one, member, factor) for place, member in cells.items()}
    for names in (dict(zip(hosts, hosts, strict=True)), _short(hosts)):
        table = _table(hosts, names, texts)
        if max(map(len, table.splitlines())) <= width:
            heading = ", ".join(filter(None, [one.probe, one.what]))
            legend = [LEGEND] if one.later else []
            # of conditions there may be more than fit
            lines = wrap(f"{heading}: {unit}, from row to column", width, subsequent_indent="  ")
            return "\n".join([*lines, table, *legend])
    return ""


def _scale(one: Series) -> tuple[float, str]:
    """All cells in the unit of the median."""
    value, unit = readable(one.median, one.unit.name)
    return value / one.median if one.median else 1.0, unit


def _cell(one: Series, member: Measurement, factor: float) -> str:
    later = one.again(member)
    return digits(factor * (later or member).value) + ("*" if later else "")


def _table(hosts: Sequence[str], names: Mapping[str, str], texts: Mapping[tuple[str, ...], str]) -> str:
    rows = [
        (sender, *("-" if sender == receiver else texts.get((sender, receiver), "") for receiver in hosts))
        for sender in hosts
    ]
    return aligned([("", *(names[host] for host in hosts)), *rows])


def _short(hosts: Sequence[str]) -> dict[str, str]:
    """Return the names without what all have in common at their beginning and end."""
    # a number stays whole: 01, not 1
    start = len(hosts[0][: _alike(hosts)].rstrip("0123456789"))
    end = _alike([host[start:][::-1] for host in hosts])
    return {host: host[start : len(host) - end] or host for host in hosts}


def _alike(names: Sequence[str]) -> int:
    """How many characters all names begin with."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False)))
