"""Prometheus' metrics: one list of names, and the samples of health, probes, acceptances and jobs in base units."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nodectl.model.acceptance import Acceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.job import Job, JobState
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status, worst
from nodectl.report.series import AGAIN, KindOf

# a lone surrogate is a byte that was no UTF-8: of such a file node_exporter takes nothing at all
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
Labels = tuple[tuple[str, str], ...]
Samples = Mapping[Labels, float]

_SERIES = ("host", "probe", "what", "size_bytes")


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples; a sample may lack labels that say nothing of it."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("nodectl_health_recorded_info", "What answers for the host.", ("host", "recording")),
        Metric("nodectl_health_findings", "Findings by check and status.", ("host", "check", "status")),
        Metric(
            "nodectl_health_problem",
            "A finding that is neither ok nor skipped.",
            ("host", "check", "subject", "status"),
        ),
        Metric("nodectl_health_status", "1 for the worst status of the host.", ("host", "status")),
        Metric(
            "nodectl_health_profiles_info",
            "The profiles that the host is held against.",
            ("host", "hardware", "stack", "tuning"),
        ),
        Metric("nodectl_health_last_run_timestamp_seconds", "When it was looked."),
        Metric(
            "nodectl_probe_bandwidth_bytes_per_second", "The least bandwidth that was measured with the host.", _SERIES
        ),
        Metric("nodectl_probe_flops", "The fewest floating-point operations a second of the host's devices.", _SERIES),
        Metric("nodectl_probe_time_seconds", "The longest time that was measured with the host.", _SERIES),
        Metric(
            "nodectl_probe_rate_per_second",
            "The fewest of these in a second, measured with the host.",
            (*_SERIES, "of"),
        ),
        Metric("nodectl_probe_wrong_results", "Results of the host that were not what they must be.", _SERIES),
        Metric("nodectl_probe_value", "The least in a unit that has no metric of its own.", (*_SERIES, "unit")),
        Metric(
            "nodectl_probe_floor_ratio",
            "The least part of the hardware profile's floor; below 1 it is missed.",
            _SERIES,
        ),
        Metric("nodectl_probe_findings", "Findings of the probes by status.", ("host", "check", "status")),
        Metric("nodectl_probe_last_run_timestamp_seconds", "When the probe had last ended.", ("probe",)),
        Metric("nodectl_accept_info", "The acceptance.", ("id", "level", "nature", "version")),
        Metric("nodectl_accept_verdict", "1 for the host's verdict.", ("host", "verdict")),
        Metric("nodectl_accept_step_info", "The host's status in a step.", ("host", "step", "status")),
        Metric("nodectl_accept_step_duration_seconds", "What a step took.", ("step", "scope")),
        Metric("nodectl_accept_findings", "Findings of the steps by status.", ("host", "step", "status")),
        Metric(
            "nodectl_accept_floor_ratio",
            "The least part of the hardware profile's floor in a step; below 1 it is missed.",
            (*_SERIES, "step"),
        ),
        Metric("nodectl_accept_complete", "1 where the acceptance has come to its end."),
        Metric("nodectl_accept_accepted_timestamp_seconds", "When the host was last accepted.", ("host", "level")),
        Metric("nodectl_accept_last_run_timestamp_seconds", "When the acceptance ended, or began where it has not."),
        Metric("nodectl_jobs", "Jobs on the hosts by state.", ("state",)),
        Metric("nodectl_job_info", "The job.", ("job_id", "operator", "script")),
        Metric("nodectl_job_state", "1 for the job's state.", ("job_id", "state")),
        Metric("nodectl_job_failure_info", "What ended the job first.", ("job_id", "class", "kind", "host")),
        Metric("nodectl_job_restarts_total", "Attempts of the job after its first.", ("job_id",), "counter"),
        Metric("nodectl_job_duration_seconds", "How long the job runs, or ran.", ("job_id",)),
        Metric("nodectl_job_start_timestamp_seconds", "When the job was started.", ("job_id",)),
        Metric("nodectl_job_hosts", "Hosts of the job.", ("job_id",)),
        Metric("nodectl_job_unreachable_hosts", "Hosts of the job that could not be asked.", ("job_id",)),
        Metric("nodectl_jobs_last_run_timestamp_seconds", "When the jobs were listed."),
    )
}


def family(name: str, samples: Samples) -> str:
    """Return the metric with its samples in Prometheus' text format; an empty text where it has none."""
    metric = METRICS[name]
    if not samples:
        return ""
    lines = [f"# HELP {name} {metric.about}", f"# TYPE {name} {metric.kind}"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    # control characters made visible here: done later, their backslash would be no escape that Prometheus knows
    value = _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


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


class _Base(NamedTuple):
    """The metric for a unit, what one of the unit is in its base unit, and labels of its own."""

    metric: str
    factor: float
    labels: Labels = ()


_BANDWIDTH, _TIME = "nodectl_probe_bandwidth_bytes_per_second", "nodectl_probe_time_seconds"
_RATE = "nodectl_probe_rate_per_second"
BASES = {
    **{f"{prefix}B/s": _Base(_BANDWIDTH, scale) for prefix, scale in (("M", 1e6), ("G", 1e9))},
    **{f"{prefix}iB/s": _Base(_BANDWIDTH, scale) for prefix, scale in (("M", 1 << 20), ("G", 1 << 30))},
    **{unit: _Base(_BANDWIDTH, 1e9 / 8) for unit in ("Gb/s", "Gbit/s")},
    **{unit: _Base(_TIME, scale) for unit, scale in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0))},
    "TFLOPS": _Base("nodectl_probe_flops", 1e12),
    "IOPS": _Base(_RATE, 1, (("of", "operations"),)),
    **{f"{what}/s": _Base(_RATE, 1, (("of", what),)) for what in ("files", "samples", "tokens")},
    "wrong results": _Base("nodectl_probe_wrong_results", 1),
}
# of a job that ended longer ago only the count remains: its labels would stay for as long as it lies on the hosts
_KEPT_S = 86400.0


def probe_metrics(
    measurements: Sequence[Measurement], findings: Sequence[Finding], kind_of: KindOf, *, time_s: float
) -> str:
    """Return the worst value of a kind for each host, its part of the floor, and the findings by status."""
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    for measurement in _whole(measurements):
        unit = measurement.unit
        base = BASES.get(unit, _Base("nodectl_probe_value", 1, (("unit", unit),)))
        is_worst = max if _less_is_better(measurement, kind_of) else min
        for series in _series(measurement, kind_of):
            own, value = values[base.metric], measurement.value * base.factor
            labels = (*series, *base.labels)
            own[labels] = is_worst(own.get(labels, value), value)
    counted = Counter((finding.host, finding.check, finding.status.value) for finding in findings)
    found: Samples = {
        (("host", host), ("check", check), ("status", status)): number
        for (host, check, status), number in sorted(counted.items())
    }
    ended: Samples = {(("probe", probe),): round(time_s, 3) for probe in sorted({each.probe for each in measurements})}
    return "".join(
        [
            *(family(name, _sorted(values[name])) for name in sorted(values)),
            family("nodectl_probe_floor_ratio", _ratios(measurements, kind_of)),
            family("nodectl_probe_findings", found),
            family("nodectl_probe_last_run_timestamp_seconds", ended),
        ]
    )


def acceptance_metrics(acceptance: Acceptance, kind_of: KindOf) -> str:
    """Each host's verdict and its status in each step, what the steps took, and the least part of a floor."""
    level, ended = acceptance.level, acceptance.ended
    identity: Labels = (
        ("id", acceptance.id), ("level", level), ("nature", acceptance.nature), ("version", acceptance.nodectl)
    )  # fmt: skip
    verdicts: Samples = {
        (("host", host.host), ("verdict", verdict.value)): int(host.verdict is verdict)
        for host in acceptance.hosts
        for verdict in NodeVerdict
    }
    steps: Samples = {
        (("host", host.host), ("step", step), ("status", status.value)): 1
        for host in acceptance.hosts
        for step, status in host.steps.items()
    }
    took: Samples = {
        (("step", step.name), ("scope", step.scope)): round(step.took_s, 3)
        for step in acceptance.steps
        if step.took_s is not None
    }
    counted = Counter((seen.finding.host, seen.step, seen.finding.status.value) for seen in acceptance.seen)
    found: Samples = {
        (("host", host), ("step", step), ("status", status)): number
        for (host, step, status), number in sorted(counted.items())
    }
    ratios: dict[Labels, float] = {}
    for step in dict.fromkeys(row.step for row in acceptance.taken):
        own = [row.measurement for row in acceptance.taken if row.step == step]
        ratios |= {(*labels, ("step", step)): ratio for labels, ratio in _ratios(own, kind_of).items()}
    accepted: Samples = {
        (("host", host.host), ("level", level)): round(ended, 3)
        for host in acceptance.hosts
        if ended is not None and host.verdict.accepts
    }
    return "".join(
        [
            family("nodectl_accept_info", {identity: 1}),
            family("nodectl_accept_verdict", verdicts),
            family("nodectl_accept_step_info", steps),
            family("nodectl_accept_step_duration_seconds", took),
            family("nodectl_accept_findings", found),
            family("nodectl_accept_floor_ratio", ratios),
            family("nodectl_accept_complete", {(): int(ended is not None)}),
            family("nodectl_accept_accepted_timestamp_seconds", accepted),
            family(
                "nodectl_accept_last_run_timestamp_seconds",
                {(): round(acceptance.began if ended is None else ended, 3)},
            ),
        ]
    )


def jobs_metrics(jobs: Sequence[Job], *, time_s: float) -> str:
    """How many are in each state, and each that runs or ended within a day: state, failure, restarts, duration."""
    counted = Counter(job.state for job in jobs)
    recent = [job for job in jobs if job.ended_at is None or time_s - job.ended_at < _KEPT_S]
    named: dict[str, Labels] = {job.id: (("job_id", job.id),) for job in recent}
    infos: Samples = {(*named[job.id], ("operator", job.operator), ("script", job.script)): 1 for job in recent}
    states: Samples = {
        (*named[job.id], ("state", state.value)): int(job.state is state) for job in recent for state in JobState
    }
    failures: Samples = {
        (*named[job.id], ("class", cause.category), ("kind", cause.kind), ("host", cause.host)): 1
        for job in recent
        if job.state is JobState.FAILED and (cause := job.first_failure) is not None
    }
    figures: dict[str, Samples] = {
        "nodectl_job_restarts_total": {named[job.id]: job.attempt - 1 for job in recent},
        "nodectl_job_duration_seconds": {
            named[job.id]: round(max(0.0, (time_s if job.ended_at is None else job.ended_at) - job.created_at), 3)
            for job in recent
        },
        "nodectl_job_start_timestamp_seconds": {named[job.id]: round(job.created_at, 3) for job in recent},
        "nodectl_job_hosts": {named[job.id]: len(job.hosts) for job in recent},
        "nodectl_job_unreachable_hosts": {named[job.id]: len(job.unreachable) for job in recent},
    }
    return "".join(
        [
            family("nodectl_jobs", {(("state", state.value),): counted[state] for state in JobState}),
            family("nodectl_job_info", infos),
            family("nodectl_job_state", states),
            family("nodectl_job_failure_info", failures),
            *(family(name, samples) for name, samples in figures.items()),
            family("nodectl_jobs_last_run_timestamp_seconds", {(): round(time_s, 3)}),
        ]
    )


def _whole(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return it without what was measured a second time, and runs that were cut short."""
    return [
        each for each in measurements if AGAIN not in each.conditions and each.conditions.get("complete") is not False
    ]


def _series(measurement: Measurement, kind_of: KindOf) -> list[Labels]:
    """Return the labels for each host that took part; a place within it, such as a GPU's number, is no label."""
    kind = kind_of(measurement.probe)
    given = {name: value for name, value in measurement.conditions.items() if name not in kind.places}
    size = given.get("size_bytes")
    sized: Labels = (("size_bytes", str(size)),) if isinstance(size, int) else ()
    about: Labels = (("probe", measurement.probe), ("what", kind.subject(given)), *sized)
    return [(("host", host), *about) for host in measurement.hosts]


def _less_is_better(measurement: Measurement, kind_of: KindOf) -> bool:
    return bool(kind_of(measurement.probe).lower_is_better(measurement.unit))


def _ratios(measurements: Iterable[Measurement], kind_of: KindOf) -> dict[Labels, float]:
    """Return by host and kind the least part of the floor; for a time it is the expected value by the measured one."""
    ratios: dict[Labels, float] = {}
    for measurement in _whole(measurements):
        expected, value = measurement.expected, measurement.value
        if not expected or (not value and _less_is_better(measurement, kind_of)):
            continue
        ratio = round(expected / value if _less_is_better(measurement, kind_of) else value / expected, 4)
        for labels in _series(measurement, kind_of):
            ratios[labels] = min(ratios.get(labels, ratio), ratio)
    return dict(sorted(ratios.items()))


def _sorted(samples: Samples) -> Samples:
    return dict(sorted(samples.items()))
