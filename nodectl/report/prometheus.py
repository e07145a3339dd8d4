"""Findings in Prometheus' text format, for node_exporter's textfile collector."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
Labels = tuple[tuple[str, str], ...]
Samples = dict[Labels, float]


def prometheus(
    findings: Sequence[Finding],
    profiles: Mapping[str, Mapping[str, str]],
    *,
    time_s: float,
    recorded: Mapping[str, str] | None = None,
) -> str:
    """Counts by check, each problem, each host's worst status as states; `profiles` is {host: {kind: name}}."""
    statuses: dict[str, set[Status]] = {host: set() for host in profiles}
    for finding in findings:
        statuses.setdefault(finding.host, set()).add(finding.status)
    counted = Counter((finding.host, finding.check, finding.status) for finding in findings)
    counts: Samples = {
        (("host", host), ("check", check), ("status", status.value)): number
        for (host, check, status), number in sorted(counted.items())
    }
    problems: Samples = {
        (("host", f.host), ("check", f.check), ("subject", f.subject), ("status", f.status.value)): 1
        for f in findings
        if f.status not in (Status.OK, Status.SKIPPED)
    }
    states: Samples = {
        (("host", host), ("status", status.value)): int(status is worst(its))
        for host, its in sorted(statuses.items())
        for status in Status
    }
    info: Samples = {(("host", host), *sorted(names.items())): 1 for host, names in sorted(profiles.items())}
    replayed: Samples = {(("host", host), ("recording", name)): 1 for host, name in sorted((recorded or {}).items())}
    # a family of what no host has would be noise on every other scrape
    extra = [_family("nodectl_health_recorded_info", "What answers for the host.", replayed)] if replayed else []
    return "".join(
        [
            *extra,
            _family("nodectl_health_findings", "Findings by check and status.", counts),
            _family("nodectl_health_problem", "A finding that is neither ok nor skipped.", problems),
            _family("nodectl_health_status", "1 for the worst status of the host.", states),
            _family("nodectl_health_profiles_info", "The profiles that the host is held against.", info),
            _family("nodectl_health_last_run_timestamp_seconds", "When it was looked.", {(): round(time_s, 3)}),
        ]
    )


def _family(name: str, text: str, samples: Mapping[Labels, float]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    # control characters made visible here: done later, their backslash would be no escape that Prometheus knows
    value = _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
