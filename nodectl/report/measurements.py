"""Measurements and a probe's findings as tables, worst finding first."""

from collections.abc import Callable, Sequence

from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement, MeasurementKind
from nodectl.report.facts import aligned

KindOf = Callable[[str], MeasurementKind]


def measurements_table(measurements: Sequence[Measurement], kind_of: KindOf) -> str:
    """A line for each value, with its spread, and its unit and conditions as the probe of that name says."""
    header = ("PROBE", "HOSTS", "VALUE", "SPREAD", "CONDITIONS")
    rows = [
        (
            each.probe,
            each.direction or fold(each.hosts),
            kind_of(each.probe).unit(each.unit).text(each.value) + _expected(each),
            "-" if each.spread is None else f"{100 * each.spread:.1f} %",
            kind_of(each.probe).conditions(each.conditions),
        )
        for each in measurements
    ]
    return aligned([header, *rows])


def findings_list(findings: Sequence[Finding]) -> str:
    """A line for each finding, a second for its remedy."""
    lines = []
    for each in sorted(findings, key=lambda finding: finding.status.rank):
        about = f"{each.host}: {each.subject}" if each.kind == "host" and each.subject else each.subject or each.host
        lines.append(f"{each.status}  {each.check}  {about}: {each.actual}")
        if each.remedy:
            lines.append(f"  try: {each.remedy}")
    return "\n".join(lines)


def _expected(measurement: Measurement) -> str:
    """`, 95 % of 800`, where a hardware profile says what it should be."""
    wanted = measurement.expected
    return "" if not wanted else f", {100 * measurement.value / wanted:.0f} % of {wanted:g}"
