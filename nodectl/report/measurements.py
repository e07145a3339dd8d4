"""Measurements and a probe's findings as tables, worst finding first."""

from collections.abc import Callable, Sequence

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.report.facts import aligned

Fold = Callable[[Sequence[str]], str]
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def measurements_table(measurements: Sequence[Measurement], fold: Fold) -> str:
    """A line for each value, with its spread and the conditions that matter most."""
    header = ("PROBE", "HOSTS", "VALUE", "SPREAD", "CONDITIONS")
    rows = [
        (
            each.probe,
            each.direction or fold(each.hosts),
            _value(each),
            "-" if each.spread is None else f"{100 * each.spread:.1f} %",
            _conditions(each),
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


def size(size_bytes: int) -> str:
    """`64 MiB`, exact or in bytes."""
    for unit_bytes, unit in _SIZES:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def _value(measurement: Measurement) -> str:
    if measurement.unit == "GB/s" and measurement.probe != "memory":
        return f"{_number(measurement.value)} GB/s = {_number(8 * measurement.value)} Gbit/s"
    return f"{_number(measurement.value)} {measurement.unit}"


def _number(value: float) -> str:
    """Three decimals, and three digits where those would be noughts."""
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def _amount(value: object) -> str:
    return _number(value) if isinstance(value, int | float) else "?"


def _conditions(measurement: Measurement) -> str:
    given = measurement.conditions
    if measurement.probe == "nccl":
        collective, size_bytes = given.get("collective"), given.get("size_bytes")
        sized = size(size_bytes) if isinstance(size_bytes, int) else "?"
        return f"{collective} {sized}, {given.get('backend')}, {given.get('ranks')} ranks"
    if measurement.probe == "memory":
        return f"{given.get('kernel')}, {given.get('threads')} threads, {given.get('method')}"
    if measurement.probe == "storage":
        direct = "direct" if given.get("direct") else "page cache"
        return f"{given.get('pattern')}, {given.get('file_system')}, {direct}"
    if measurement.probe == "latency":
        return f"p99 {_amount(given.get('p99_us'))} us, min {_amount(given.get('min_us'))} us"
    retransmits = given.get("retransmits")
    told = "" if retransmits is None else f", {retransmits} retransmits"
    return f"{given.get('streams')} stream, {given.get('congestion')}{told}"
