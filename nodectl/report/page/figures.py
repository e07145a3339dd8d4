"""Measurements: the fleet's figures, who is blamed for slow ones, and pairs of hosts as a heat map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.report.page.blocks import Block, Cell, Heat, Number, Section, Table, Text
from nodectl.report.page.content import Measured
from nodectl.report.page.fleet import findings_table, origin_of
from nodectl.report.series import KindOf, Series, fleet_series

# a map of more hosts is too large to read: "The worst" names their slow pairs
_MOST_HOSTS = 64
# a cell that is this much worse than the median has the full colour
_FULL_SHADE = 0.25
_WORST = 5
_BLAMED = (Status.FAILED, Status.WARNING, Status.UNKNOWN)


def figures_section(latest: Acceptance | None, measured: Sequence[Measured], kind_of: KindOf) -> Section:
    """Return all measurements, those of the latest acceptance first."""
    if latest is not None and latest.taken:
        taken = tuple(one.measurement for one in latest.taken)
        measured = (Measured(taken, tuple(one.finding for one in latest.seen), origin_of(latest)), *measured)
    seen: set[object] = set()
    measured = [new for one in measured if (new := _not_in(one, seen)).measurements]
    missing = "Nothing was measured: `nodectl probe`, or `nodectl accept`."
    return Section(
        "measured", "Measurements", missing, tuple(chain.from_iterable(_blocks(one, kind_of) for one in measured))
    )


def _not_in(one: Measured, seen: set[object]) -> Measured:
    """Leave out what is `seen` already, and add the rest to it: the history also has what an acceptance measured."""
    keys = {
        id(value): (value.probe, value.hosts, value.direction, value.unit, value.value) for value in one.measurements
    }
    new = tuple(value for value in one.measurements if keys[id(value)] not in seen)
    seen.update(keys.values())
    return replace(one, measurements=new)


def _blocks(one: Measured, kind_of: KindOf) -> Iterator[Block]:
    series = fleet_series(one.measurements, kind_of)
    largest: dict[tuple[str, str], float] = {}
    for member in series:
        key = (member.probe, member.unit.name)
        largest[key] = max(largest.get(key, 0.0), member.median)
    rows = [_figures(member, largest[member.probe, member.unit.name]) for member in series]
    columns = ("Probe", "What", "Of", "Median", "Lowest to highest", "Floor", "The worst")
    yield Table("Figures of the fleet", columns, rows, one.origin)
    blamed = [finding for finding in one.findings or () if finding.status in _BLAMED and finding.kind]
    if blamed:
        yield findings_table("Who is blamed", blamed, one.origin)
    # the larger the message, the nearer to what a link can carry: one map for each thing measured
    maps = {
        (one.probe, one.unit.name, one.kind.subject(one.members[0].conditions)): one
        for one in series
        if one.is_matrix() and len(one.hosts) <= _MOST_HOSTS
    }
    for member in maps.values():
        yield from _heat(member, blamed, one)


def _figures(one: Series, largest: float) -> tuple[Cell, ...]:
    values = [member.value for member in one.members]
    number, hosts = len(one.members), counted(len(one.hosts), "host")
    of = hosts if number == len(one.hosts) else f"{number:,} on {hosts}"
    floors = [member.expected for member in one.members if member.expected is not None]
    worst = ", ".join(_place(member) for member in one.worst(_WORST)) if number > 1 and not one.is_alike() else ""
    return (
        one.probe,
        one.what,
        of if number > 1 else _place(one.members[0]),
        Number(one.unit.short(one.median), max(0.0, one.median / largest) if largest > 0 else None),
        Number(f"{one.unit.short(min(values))} to {one.unit.short(max(values))}" if number > 1 else ""),
        Number(one.unit.short(max(floors)) if floors else ""),
        worst,
    )


def _place(member: Measurement) -> str:
    return member.direction or (fold(member.hosts) if len(member.hosts) > 2 else ", ".join(member.hosts))


def _heat(one: Series, blamed: Sequence[Finding], measured: Measured) -> Iterator[Block]:
    guilty = [finding for finding in blamed if finding.check == one.probe]
    latest = {member.hosts: one.again(member) or member for member in one.members}
    cells: dict[tuple[str, ...], Cell] = {
        pair: Heat(one.unit.short(member.value), _shade(member.value, one), any(_blames(pair, of) for of in guilty))
        for pair, member in latest.items()
    }
    rows: list[tuple[Cell, ...]] = [(row, *(cells.get((row, column), "") for column in one.hosts)) for row in one.hosts]
    what = ", ".join(filter(None, [one.probe, one.what]))
    yield Table(f"Pairs, {what}: from row to column", ("From", *one.hosts), rows, measured.origin)
    names = [finding.host if finding.kind == "host" else finding.subject or fold(finding.hosts) for finding in guilty]
    blame = f"Blamed, with ✕ and a frame: {few(names)}" if guilty else "Nobody is blamed"
    if measured.findings is None:
        blame = "Who is to blame is not kept"
    yield Text(f"The darker a cell, the worse it is than the median, {one.unit.short(one.median)}. {blame}.")


def _shade(value: float, one: Series) -> float:
    worse = (value - one.median) if one.lower_is_better else (one.median - value)
    return min(1.0, max(0.0, worse / abs(one.median) / _FULL_SHADE)) if one.median else 0.0


def _blames(pair: tuple[str, ...], finding: Finding) -> bool:
    if finding.kind == "host":
        return finding.host in pair
    return pair == finding.hosts or (finding.kind == "path" and set(pair) == set(finding.hosts))
