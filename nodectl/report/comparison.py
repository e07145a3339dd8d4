"""Measurements beside earlier ones, as a table."""

from collections.abc import Sequence

from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.model.comparison import Change, Comparison
from nodectl.report.facts import aligned

_SPREADS = {True: "outside both spreads", False: "within the spreads", None: "spread not known"}
_LISTED = 5


def comparison_table(compared: Comparison) -> str:
    """A line for each change, and one for what has no counterpart on either side."""
    header = ("PROBE", "HOSTS", "WHAT", "OLD", "NEW", "CHANGE", "", "MEASURED")
    rows = [_row(each) for each in compared.changes]
    lines = [f"against {compared.against}:"]
    if rows:
        lines.append(aligned([header, *rows]))
    lines += _without("not measured then", compared.only_new)
    lines += _without("not measured now", compared.only_old)
    return "\n".join(lines)


def _row(each: Change) -> tuple[str, ...]:
    what = ", ".join(filter(None, [each.subject, "" if each.size_bytes is None else format_size(each.size_bytes)]))
    change = "-" if each.change_percent is None else f"{each.change_percent:+.1f} %"
    return (
        each.probe,
        each.direction or fold(each.hosts),
        what or "-",
        f"{each.old:.4g} {each.unit}",
        f"{each.new:.4g} {each.unit}",
        change,
        _SPREADS[each.outside_spreads],
        each.old_time or "-",
    )


def _without(said: str, labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    more = f" and {len(labels) - _LISTED} more" if len(labels) > _LISTED else ""
    return [f"{said}: {'; '.join(labels[:_LISTED])}{more}"]
