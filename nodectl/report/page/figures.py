"""Measurements: the fleet's figures, pairs as a heat map with who is blamed, curves over sizes against floors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.natural import natural
from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.report.page.blocks import Block, Cell, Chart, ChartKind, Mark, Number, Section, Table
from nodectl.report.page.content import Measured
from nodectl.report.page.fleet import origin_of, what_to_do
from nodectl.report.series import KindOf, Series, fleet_series

# a matrix of more hosts than that has cells that nobody sees: its pairs are a table
_MOST_HOSTS = 160
_LEAST_HOSTS, _LEAST_FILLED = 3, 0.5
_LEAST_SIZES = 3
# of more hosts than that the median, the lowest and the highest are drawn
_MOST_LINES = 4
_SIZE = "size_bytes"
_WORST = 5
_MOST_SUBJECTS = 8
_BLAMED = (Status.FAILED, Status.WARNING, Status.UNKNOWN)


def figures_section(acceptances: Sequence[Acceptance], measured: Sequence[Measured], kind_of: KindOf) -> Section:
    """All measurements, those of the latest acceptance first."""
    latest = max(acceptances, key=lambda one: one.began, default=None)
    if latest is not None and latest.taken:
        taken = tuple(one.measurement for one in latest.taken)
        measured = (Measured(taken, tuple(one.finding for one in latest.seen), origin_of(latest)), *measured)
    seen: set[object] = set()
    measured = [new for one in measured if (new := _not_in(one, seen)).measurements]
    missing = "Nothing was measured: `nodectl probe`, or `nodectl accept`."
    blocks = chain.from_iterable(_blocks(one, kind_of) for one in measured)
    return Section("measured", "Measurements", tuple(blocks), missing)


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
    yield _summary(_without_curves(series), one)
    blamed = [finding for finding in one.findings or () if finding.status in _BLAMED and finding.kind]
    if blamed:
        yield _blame(blamed, one)
    # the larger the message, the nearer to what a link can carry: one picture a thing measured
    pictures: dict[tuple[str, str, str], Series] = {}
    for member in series:
        if _is_matrix(member):
            subject = member.kind.subject(member.members[0].conditions)
            pictures[member.probe, member.members[0].unit, subject] = member
    for member in pictures.values():
        yield _heat(member, blamed, one)
    yield from _curves(one, kind_of)


def _without_curves(series: Sequence[Series]) -> list[Series]:
    """Keep only the largest of what is drawn over sizes: the curve has the others."""
    sizes: dict[tuple[object, ...], list[tuple[int, Series]]] = defaultdict(list)
    kept = []
    for one in series:
        first = one.members[0]
        size = first.conditions.get(_SIZE)
        if isinstance(size, int):
            sizes[one.probe, first.unit, one.kind.subject(first.conditions)].append((size, one))
    few_sizes = {id(one) for alike in sizes.values() if len(alike) < _LEAST_SIZES for _, one in alike}
    largest = {id(max(alike, key=lambda pair: pair[0])[1]) for alike in sizes.values()}
    for one in series:
        is_sized = isinstance(one.members[0].conditions.get(_SIZE), int)
        if not is_sized or id(one) in few_sizes | largest:
            kept.append(one)
    return kept


def _summary(series: Sequence[Series], one: Measured) -> Table:
    rows = [_figures(member) for member in series]
    columns = ("Probe", "What", "Of", "Median", "Lowest to highest", "Floor", "The worst")
    return Table("Figures of the fleet", columns, rows, one.origin)


def _figures(one: Series) -> tuple[Cell, ...]:
    values = [member.value for member in one.members]
    number, hosts = len(one.members), one.hosts
    of = counted(len(hosts), "host") if number == len(hosts) else f"{number:,} on {counted(len(hosts), 'host')}"
    floors = [member.expected for member in one.members if member.expected is not None]
    worst = ", ".join(_place(member) for member in one.worst(_WORST)) if number > 1 and not one.is_alike() else ""
    return (
        one.probe,
        one.what,
        of if number > 1 else _place(one.members[0]),
        Number(one.unit.short(one.median)),
        Number(f"{one.unit.short(min(values))} to {one.unit.short(max(values))}" if number > 1 else ""),
        Number(one.unit.short(max(floors)) if floors else ""),
        worst,
    )


def _place(member: Measurement) -> str:
    return member.direction or (fold(member.hosts) if len(member.hosts) > 2 else ", ".join(member.hosts))


def _blame(blamed: Sequence[Finding], one: Measured) -> Table:
    ordered = sorted(blamed, key=lambda finding: (finding.status.rank, finding.kind))
    rows: list[tuple[Cell, ...]] = [
        (
            Mark(finding.status, finding.status.value),
            finding.kind,
            finding.host if finding.kind == "host" else finding.subject or fold(finding.hosts),
            finding.check,
            finding.actual,
            what_to_do(finding),
        )
        for finding in ordered
    ]
    return Table("Who is blamed", ("Status", "Kind", "Who", "Probe", "Why", "What to do"), rows, one.origin)


def _is_matrix(one: Series) -> bool:
    hosts, pairs = one.hosts, [member for member in one.members if len(member.hosts) == 2]
    possible = len(hosts) * (len(hosts) - 1) / (1 if any(member.direction for member in pairs) else 2)
    is_pairs = len(pairs) == len(one.members) and len({member.hosts for member in pairs}) == len(pairs)
    return is_pairs and _LEAST_HOSTS <= len(hosts) <= _MOST_HOSTS and len(pairs) >= _LEAST_FILLED * possible


def _heat(one: Series, blamed: Sequence[Finding], measured: Measured) -> Chart:
    hosts = one.hosts
    at = {host: number for number, host in enumerate(hosts)}
    guilty = [finding for finding in blamed if finding.check == one.probe]
    ends = {finding.host for finding in guilty if finding.kind == "host"}
    paths = {frozenset(finding.hosts) for finding in guilty if finding.kind == "path"}
    ways = {finding.hosts for finding in guilty if finding.kind == "direction"}

    def is_blamed(pair: tuple[str, ...]) -> bool:
        return bool(ends & set(pair)) or frozenset(pair) in paths or pair in ways

    latest = [one.again(member) or member for member in one.members]
    cells = [[at[member.hosts[0]], at[member.hosts[1]], member.value] for member in latest]
    marked = [[at[member.hosts[0]], at[member.hosts[1]]] for member in latest if is_blamed(member.hosts)]
    middle = median(member.value for member in latest)
    worst = sorted(latest, key=lambda member: member.value, reverse=one.lower_is_better is True)
    rows: list[tuple[Cell, ...]] = [
        (
            *member.hosts,
            Number(one.unit.short(member.value)),
            Number(f"{100 * (member.value / middle - 1):+.1f} %" if middle else ""),
            Mark(Status.FAILED, "blamed") if is_blamed(member.hosts) else "",
        )
        for member in worst
    ]
    caption = f"Pairs, {', '.join(filter(None, [one.probe, one.what]))}: from row to column, in {one.unit.name}"
    blame = f"blamed: {few([_who(finding) for finding in guilty])}" if guilty else "who is to blame is not kept"
    if measured.findings is not None and not guilty:
        blame = "nobody is blamed"
    low, high = one.unit.short(min(member.value for member in latest)), one.unit.short(max(m.value for m in latest))
    summary = f"Heat map of {len(latest):,} pairs of {len(hosts)} hosts, {low} to {high}; {blame}."
    data = {"rows": hosts, "columns": hosts, "cells": cells, "unit": one.unit.name, "blamed": marked}
    table = Table("Pairs, the worst first", ("From", "To", "Value", "Off the median", "Blame"), rows, measured.origin)
    picture = {**data, "lower": one.lower_is_better is True}
    return Chart(ChartKind.HEAT, f"{caption}; {blame}", summary, picture, table, measured.origin)


def _who(finding: Finding) -> str:
    return finding.host if finding.kind == "host" else finding.subject or fold(finding.hosts)


Curve = dict[int, Measurement]


def _curves(measured: Measured, kind_of: KindOf) -> Iterator[Chart]:
    """Yield a chart for each probe and unit: a line for each thing measured over sizes, its floor dashed."""
    charts: dict[tuple[str, str], dict[str, dict[tuple[object, ...], Curve]]] = {}
    for one in measured.measurements:
        size = one.conditions.get(_SIZE)
        if isinstance(size, int) and size > 0:
            subject = kind_of(one.probe).subject(one.conditions)
            place = (one.hosts, one.direction)
            lines = charts.setdefault((one.probe, one.unit), {}).setdefault(subject, {})
            lines.setdefault(place, {})[size] = one
    for (probe, unit), subjects in charts.items():
        whole = {
            subject: {place: curve for place, curve in places.items() if len(curve) >= _LEAST_SIZES}
            for subject, places in subjects.items()
        }
        shown = {subject: places for subject, places in whole.items() if places}
        for names in _by_few(sorted(shown, key=natural)):
            yield _chart(probe, unit, {name: shown[name] for name in names}, measured, kind_of)


def _by_few(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _MOST_SUBJECTS):
        yield names[start : start + _MOST_SUBJECTS]


def _chart(
    probe: str,
    unit: str,
    subjects: Mapping[str, Mapping[tuple[object, ...], Curve]],
    measured: Measured,
    kind_of: KindOf,
) -> Chart:
    lines: list[dict[str, object]] = []
    rows: list[tuple[Cell, ...]] = []
    shown_unit = kind_of(probe).unit(unit)
    few_subjects = len(subjects) == 1
    for subject, places in subjects.items():
        for name, curve, floors in _lines(places):
            label = ", ".join(filter(None, ["" if few_subjects else subject, name])) or probe
            lines.append({"name": label, "points": sorted([size, value] for size, value in curve.items())})
            if floors:
                points = sorted([size, value] for size, value in floors.items())
                lines.append({"name": f"floor of {label}", "points": points, "floor": True})
            for size, value in sorted(curve.items()):
                floor = floors.get(size)
                rows.append(
                    (
                        subject,
                        name,
                        Number(format_size(size)),
                        Number(shown_unit.short(value)),
                        Number("" if floor is None else shown_unit.short(floor)),
                    )
                )
    what = next(iter(subjects)) if few_subjects else f"{len(subjects)} kinds"
    caption = f"{probe} over sizes, {what}, in {unit}"
    floored = any(line.get("floor") for line in lines)
    summary = (
        f"Line chart of {probe}, {len(lines)} lines over sizes; {'with floors' if floored else 'without a floor'}."
    )
    table = Table(caption, ("What", "Where", "Size", "Value", "Floor"), rows, measured.origin)
    data = {"x": "size", "xName": "size", "unit": unit, "lines": lines}
    note = "; dotted: the floor" if floored else ""
    return Chart(ChartKind.LINES, caption + note, summary, data, table, measured.origin)


def _lines(
    places: Mapping[tuple[object, ...], Curve],
) -> Iterator[tuple[str, dict[int, float], dict[int, float]]]:
    """Name, values and floors by size: of each place, or of many the lowest, the median and the highest."""
    if len(places) <= _MOST_LINES:
        for curve in places.values():
            first = next(iter(curve.values()))
            floors = {size: one.expected for size, one in curve.items() if one.expected is not None}
            yield _place(first), {size: one.value for size, one in curve.items()}, floors
        return
    by_size: dict[int, list[Measurement]] = defaultdict(list)
    for curve in places.values():
        for size, one in curve.items():
            by_size[size].append(one)
    floors = {
        size: max(one.expected for one in alike if one.expected is not None)
        for size, alike in by_size.items()
        if any(one.expected is not None for one in alike)
    }
    number = len(places)
    yield f"median of {number}", {size: median(one.value for one in alike) for size, alike in by_size.items()}, floors
    yield f"lowest of {number}", {size: min(one.value for one in alike) for size, alike in by_size.items()}, {}
    yield f"highest of {number}", {size: max(one.value for one in alike) for size, alike in by_size.items()}, {}
