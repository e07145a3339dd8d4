"""A summary of hosts as Markdown, short enough to paste into a forum post or an issue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from nodectl.common.few import clipped
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.report.findings import numbers
from nodectl.report.series import Series

Words = Mapping[str, str]
# the facts that forums ask for
SUBJECTS = ("kernel", "cpu", "memory", "gpus", "gpu_topology", "p2p", "nvlink", "nics", "ib_ports", "versions")
_MOST_FACTS, _MOST_FINDINGS, _MOST_FIGURES, _MOST_CHARS = 22, 12, 12, 240
_WORST_FIRST = (Status.FAILED, Status.UNKNOWN, Status.WARNING)


def markdown(made: str, facts: Mapping[str, Words], findings: Sequence[Finding], figures: Sequence[Series]) -> str:
    """Return the summary, at most 60 lines; `facts` are words by host and subject."""
    parts = (
        (f"### {fold(facts)}", "", f"{made}. Names, addresses and serial numbers are replaced."),
        _table(("", "Hosts", "Value"), _facts(facts), _MOST_FACTS),
        (f"**Health**: {numbers(findings)}",),
        _table(("Status", "Hosts", "Check", "Found", "Expected", "What to do"), _findings(findings), _MOST_FINDINGS),
        _table(("Measured", "Median", "Lowest to highest", "Such hardware reaches"), _figures(figures), _MOST_FIGURES),
    )
    return "\n".join(line for part in parts if part for line in (*part, "")).rstrip()


def _facts(facts: Mapping[str, Words]) -> Iterator[tuple[str, ...]]:
    for subject in SUBJECTS:
        groups: dict[str, list[str]] = defaultdict(list)
        for host, words in facts.items():
            groups[words.get(subject, "")].append(host)
        for text, hosts in sorted(groups.items(), key=lambda group: -len(group[1])):
            if text:
                yield subject.replace("_", " "), fold(hosts), text


def _findings(findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for status in _WORST_FIRST:
        for finding in (finding for finding in findings if finding.status is status):
            key = (status.value, finding.check, finding.actual, finding.expected, finding.remedy)
            groups[key].append(finding.host)
    for (status_word, check, *rest), hosts in groups.items():
        yield status_word, fold(dict.fromkeys(hosts)), check, *rest


def _figures(figures: Sequence[Series]) -> Iterator[tuple[str, ...]]:
    for series in figures:
        values = [member.value for member in series.members]
        floors = [member.expected for member in series.members if member.expected is not None]
        yield (
            " ".join(filter(None, [series.probe, series.what])),
            series.unit.short(series.median),
            f"{series.unit.short(min(values))} to {series.unit.short(max(values))}" if len(values) > 1 else "",
            f"at least {series.unit.short(max(floors))}" if floors else "",
        )


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]], most: int) -> tuple[str, ...]:
    listed = list(rows)
    if not listed:
        return ()
    lines = [head, ["---"] * len(head), *listed[:most]]
    more = [f"… and {len(listed) - most} more"] if len(listed) > most else []
    cells = ([clipped(" ".join(text.split()), _MOST_CHARS).replace("|", r"\|") for text in line] for line in lines)
    return (*(f"| {' | '.join(line)} |" for line in cells), *more)
