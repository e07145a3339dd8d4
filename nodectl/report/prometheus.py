"""Findings in Prometheus' text format, for node_exporter's textfile collector."""

from collections import Counter
from collections.abc import Mapping, Sequence

from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.report.metrics import Samples, family


def prometheus(
    findings: Sequence[Finding],
    profiles: Mapping[str, Mapping[str, str]],
    *,
    time_s: float,
    recorded: Mapping[str, str] | None = None,
) -> str:
    """Return counts by check, each problem, each host's worst status as states; `profiles` is {host: {kind: name}}."""
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
    return "".join(
        [
            family("nodectl_health_recorded_info", replayed),
            family("nodectl_health_findings", counts),
            family("nodectl_health_problem", problems),
            family("nodectl_health_status", states),
            family("nodectl_health_profiles_info", info),
            family("nodectl_health_last_run_timestamp_seconds", {(): round(time_s, 3)}),
        ]
    )
