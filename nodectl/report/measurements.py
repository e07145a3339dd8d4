"""Measurements as tables, by themselves and beside earlier ones."""

from collections.abc import Callable, Sequence

from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.model.comparison import Change, Comparison
from nodectl.model.measurement import Measurement, MeasurementKind
from nodectl.report.table import aligned

KindOf = Callable[[str], MeasurementKind]
_SPREADS = {True: "outside both spreads", False: "within the spreads", None: "spread not known"}
_LISTED = 5


def measurements_table(measurements: Sequence[Measurement], kind_of: KindOf) -> str:
    """A line for each value, with its spread, and its unit and conditions as the probe of that name says."""
    header = ("PROBE", "HOSTS", "VALUE", "SPREAD", "CONDITIONS")
    rows = [
        (
            measurement.probe,
            measurement.direction or fold(measurement.hosts),
            kind_of(measurement.probe).unit(measurement.unit).text(measurement.value) + _expected(measurement),
            "-" if measurement.spread is None else f"{100 * measurement.spread:.1f} %",
            kind_of(measurement.probe).conditions(measurement.conditions),
        )
        for measurement in measurements
    ]
    return aligned([header, *rows])


def _expected(measurement: Measurement) -> str:
    """`, 95 % of 800`, where a hardware profile says what it should be."""
    wanted = measurement.expected
    return "" if not wanted else f", {100 * measurement.value / wanted:.0f} % of {wanted:g}"


def comparison_table(compared: Comparison) -> str:
    """A line for each change, and one for what has no counterpart on either side."""
    header = ("PROBE", "HOSTS", "WHAT", "OLD", "NEW", "CHANGE", "", "MEASURED")
    rows = [_row(change) for change in compared.changes]
    lines = [f"against {compared.against}:"]
    if rows:
        lines.append(aligned([header, *rows]))
    lines += _without("not measured then", compared.only_new)
    lines += _without("not measured now", compared.only_old)
    return "\n".join(lines)


def _row(change: Change) -> tuple[str, ...]:
    subject = ", ".join(
        filter(None, [change.subject, "" if change.size_bytes is None else format_size(change.size_bytes)])
    )
    percent = "-" if change.change_percent is None else f"{change.change_percent:+.1f} %"
    return (
        change.probe,
        change.direction or fold(change.hosts),
        subject or "-",
        f"{change.old:.4g} {change.unit}",
        f"{change.new:.4g} {change.unit}",
        percent,
        _SPREADS[change.outside_spreads],
        change.old_time or "-",
    )


def _without(heading: str, labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    more = f" and {len(labels) - _LISTED} more" if len(labels) > _LISTED else ""
    return [f"{heading}: {'; '.join(labels[:_LISTED])}{more}"]
