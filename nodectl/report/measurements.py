"""Measurements for people: the fleet's figures, then who is worst, pairs as a matrix, each value; and earlier ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import digits, format_size, readable
from nodectl.model.finding import Finding
from nodectl.model.measurement import Change, Comparison, Measurement
from nodectl.model.status import Status, worst
from nodectl.report.series import AGAIN, KindOf, Series, fleet_series
from nodectl.report.table import aligned, fitted

LEGEND = "* measured again: the later value"


def matrix(one: Series, width: int) -> str:
    """Senders down, receivers across, a cell a path; empty if it is no matrix, or wider than `width`."""
    hosts = one.hosts
    if not one.is_matrix():
        return ""
    value, unit = readable(one.median, one.unit.name)
    factor = value / one.median if one.median else 1.0
    texts = {}
    for member in one.members:
        later = one.again(member)
        texts[tuple(member.hosts)] = digits(factor * (later or member).value) + ("*" if later else "")
    rows = [
        (sender, *("-" if sender == receiver else texts.get((sender, receiver), "") for receiver in hosts))
        for sender in hosts
    ]
    table = aligned([("", *hosts), *rows])
    if max(map(len, table.splitlines())) > width:
        return ""
    heading = ", ".join(filter(None, [one.probe, one.what]))
    # of conditions there may be more than fit
    lines = wrap(f"{heading}: {unit}, from row to column", width, subsequent_indent="  ")
    return "\n".join([*lines, table, *([LEGEND] if one.later else [])])


# of a series with more members the worst ones are shown, more of them if no matrix shows all
_WHOLE = 4
_WORST, _WORST_WITHOUT_MATRIX = 3, 10
_SPREADS = {True: "outside both spreads", False: "within the spreads", None: "spread not known"}
_LISTED = 5
_MOST_CHANGES = 20
_COLUMNS = 80


def measurements_text(
    measurements: Sequence[Measurement],
    kind_of: KindOf,
    findings: Sequence[Finding] | None = None,
    *,
    everything: bool = False,
    width: int = _COLUMNS,
) -> str:
    """Return the fleet's figures, verdicts if `findings` are known, then pairs as a matrix or the worst."""
    series = fleet_series(measurements, kind_of)
    is_fleet = any(len(one.members) > 1 for one in series)
    parts = [_fleet_table(series, width)] if is_fleet else []
    if everything or not is_fleet:
        parts.append(measurements_table(measurements, kind_of, None if everything else width))
    verdicts = [] if findings is None else list(_verdicts(series, findings))
    again = [
        f"{one.probe}: {len(one.later)} of these were measured again; the first value counts here"
        for one in series
        if one.later
    ]
    alike = _measurements_alike(series)
    shared = [f"{probe}: measured with {', '.join(conditions)}" for probe, conditions in alike.items() if conditions]
    captions = dict.fromkeys(f"{one.probe}: {one.kind.caption}" for one in series if one.kind.caption)
    parts.insert(1, "\n".join([*verdicts, *again, *shared, *captions]))
    if is_fleet and not everything:
        shown = [matrix(one, width) for one in series]
        parts += [_worst_table(series, [bool(text) for text in shown], width), *shown]
        listed = [one for one, text in zip(series, shown, strict=True) if not text and not one.is_alike()]
        hidden = sum(max(0, len(one.members) - _shown_of(one, has_matrix=False)) for one in listed)
        total = sum(len(one.members) for one in series)
        parts.append(
            f"{hidden} of {total} values {'is' if hidden == 1 else 'are'} not shown: --all shows each" * bool(hidden)
        )
    return "\n\n".join(filter(None, parts))


def measurements_table(measurements: Sequence[Measurement], kind_of: KindOf, width: int | None = None) -> str:
    """Return each value with its spread, unit and conditions; conditions go on in the next lines beyond `width`."""
    header = ("PROBE", "HOSTS", "VALUE", "SPREAD", "CONDITIONS")
    rows = [
        (
            measurement.probe,
            _where(measurement),
            kind_of(measurement.probe).unit(measurement.unit).text(measurement.value) + _expected(measurement, kind_of),
            _spread(measurement),
            ", ".join(
                ["measured again"] * bool(measurement.conditions.get(AGAIN))
                + list(filter(None, [kind_of(measurement.probe).conditions(measurement.conditions)]))
            ),
        )
        for measurement in measurements
    ]
    return fitted([header, *rows], width or sys.maxsize)


def _fleet_table(series: Sequence[Series], width: int) -> str:
    header = ("PROBE", "WHAT", "MEASURED", "MEDIAN", "LOWEST TO HIGHEST")
    alike = _measurements_alike(series)
    rows = [(one.probe, _own(one, alike) or "-", _members_text(one), *_figures(one)) for one in series]
    return fitted([header, *rows], width, header.index("WHAT"))


def _measurements_alike(series: Sequence[Series]) -> dict[str, list[str]]:
    """For each probe of several series, the conditions that all of them show: a line says them once."""
    conditions: dict[str, list[list[str]]] = {}
    for one in series:
        conditions.setdefault(one.probe, []).append(one.what.split(", "))
    return {
        probe: [word for word in of_probe[0] if word and len(of_probe) > 1 and all(word in other for other in of_probe)]
        for probe, of_probe in conditions.items()
    }


def _own(one: Series, alike: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(word for word in one.what.split(", ") if word not in alike[one.probe])


def _members_text(one: Series) -> str:
    number, hosts = len(one.members), len(one.hosts)
    if all(len(member.hosts) == 2 and member.direction for member in one.members):
        return counted(number, "path")
    if number == hosts:
        return counted(number, "host")
    if number == 1:
        return f"over {counted(hosts, 'host')}"
    return f"{number} on {counted(hosts, 'host')}"


def _figures(one: Series) -> tuple[str, str]:
    middle = f"{one.unit.short(one.median)} {one.unit.word}".rstrip()
    if one.is_alike():
        return middle, "-" if len(one.members) == 1 else "all alike"
    values = [member.value for member in one.members]
    spread = f" ({100 * (max(values) - min(values)) / one.median:.0f} % apart)" if one.median else ""
    low, high = one.unit.short(min(values)), one.unit.short(max(values))
    unit = f" {high.partition(' ')[2]}"
    return middle, f"{low.removesuffix(unit)} to {high}{spread}"


def _verdicts(series: Sequence[Series], findings: Sequence[Finding]) -> Iterator[str]:
    for probe in dict.fromkeys(one.probe for one in series):
        unlike = [finding for finding in findings if finding.check == probe and finding.status is not Status.OK]
        status = worst(finding.status for finding in unlike) if unlike else Status.OK
        counts = Counter(finding.status for finding in unlike)
        parts = ["ok" if status is Status.OK else status.upper()]
        parts += [f"{counts[level]} {level}" for level in Status if counts[level]]
        yield f"{probe}: {', '.join(parts)}; {_shares([one for one in series if one.probe == probe])}"


def _shares(series: Sequence[Series]) -> str:
    members = [member for one in series for member in one.members]
    shares = [100 * member.value / member.expected for member in members if member.expected]
    if not shares:
        return "no floor is set"
    low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
    left = "" if len(shares) == len(members) else f" ({len(shares)} of {len(members)} values have one)"
    return f"{low if low == high else f'{low} to {high}'} % of the floor{left}"


def _worst_table(series: Sequence[Series], in_matrix: Sequence[bool], width: int) -> str:
    """Return the worst of each series that is not all alike; all of a series that has few members."""
    header = ("PROBE", "WORST FIRST", "VALUE", "VS MEDIAN", "SPREAD", "CONDITIONS")
    several = {probe for probe, number in Counter(one.probe for one in series).items() if number > 1}
    alike = _measurements_alike(series)
    rows = [
        row
        for one, has_matrix in zip(series, in_matrix, strict=True)
        if len(one.members) > 1 and not one.is_alike()
        for row in _worst_rows(
            one, _shown_of(one, has_matrix=has_matrix), _own(one, alike) if one.probe in several else ""
        )
    ]
    return fitted([header, *rows], width) if rows else ""


def _shown_of(one: Series, *, has_matrix: bool) -> int:
    if len(one.members) <= _WHOLE:
        return _WHOLE
    is_paths = len(one.members[0].hosts) == 2
    return _WORST_WITHOUT_MATRIX if is_paths and not has_matrix else _WORST


def _worst_rows(one: Series, most: int, what: str) -> Iterator[tuple[str, ...]]:
    for member in one.worst(most):
        off, again = one.off_percent(member), one.again(member)
        second = "" if again is None else f"measured again: {one.unit.short(again.value)}"
        expected = f"{100 * member.value / member.expected:.0f} % of the floor" if member.expected else ""
        remarks = [what, second, expected, one.what_of(member)]
        yield (
            one.probe,
            _where(member),
            one.unit.short(member.value),
            "-" if off is None else f"{round(off):+d} %",
            _spread(member),
            ", ".join(filter(None, remarks)),
        )


def _where(measurement: Measurement) -> str:
    return measurement.direction or fold(measurement.hosts)


def _spread(measurement: Measurement) -> str:
    return "-" if measurement.spread is None else f"{100 * measurement.spread:.1f} %"


def _expected(measurement: Measurement, kind_of: KindOf) -> str:
    wanted = measurement.expected
    if not wanted:
        return ""
    unit = kind_of(measurement.probe).unit(measurement.unit)
    return f", {100 * measurement.value / wanted:.0f} % of {unit.short(wanted)}"


def comparison_table(compared: Comparison, kind_of: KindOf, *, everything: bool = False) -> str:
    """Return a line for each change, of many the largest, and one for what has no counterpart on either side."""
    header = ["PROBE", "HOSTS", "WHAT", "OLD", "NEW", "CHANGE", ""]
    changes = compared.changes
    if len(changes) > _MOST_CHANGES and not everything:
        changes = tuple(sorted(changes, key=lambda change: -abs(change.change_percent or 0))[:_MOST_CHANGES])
    times = list(dict.fromkeys(change.old_time or "-" for change in changes))
    rows = [_row(change, kind_of) for change in changes]
    if len(times) > 1:
        header.append("MEASURED")
        rows = [(*row, change.old_time or "-") for row, change in zip(rows, changes, strict=True)]
    measured = f" ({times[0]})" if len(times) == 1 and times[0] != "-" else ""
    lines = [f"against {compared.against}{measured}:"]
    if rows:
        lines.append(aligned([header, *rows]))
    if len(changes) < len(compared.changes):
        left = len(compared.changes) - len(changes)
        lines.append(f"{counted(left, 'smaller change is', 'smaller changes are')} not shown: --all shows each")
    lines += _without("not measured then", compared.only_new)
    lines += _without("not measured now", compared.only_old)
    return "\n".join(lines)


def _row(change: Change, kind_of: KindOf) -> tuple[str, ...]:
    subject = ", ".join(
        filter(None, [change.subject, "" if change.size_bytes is None else format_size(change.size_bytes)])
    )
    percent = "-" if change.change_percent is None else f"{change.change_percent:+.1f} %"
    unit = kind_of(change.probe).unit(change.unit)
    return (
        change.probe,
        change.direction or fold(change.hosts),
        subject or "-",
        unit.short(change.old),
        unit.short(change.new),
        percent,
        _SPREADS[change.outside_spreads],
    )


def _without(heading: str, labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    more = f" and {len(labels) - _LISTED} more" if len(labels) > _LISTED else ""
    return [f"{heading}: {'; '.join(labels[:_LISTED])}{more}"]
