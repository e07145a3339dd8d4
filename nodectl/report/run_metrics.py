"""Probes, acceptances and jobs in Prometheus' text format: base units, and the worst of each host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodectl.model.acceptance import Acceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.job import Job, JobState
from nodectl.model.measurement import Measurement
from nodectl.report.metrics import Labels, Samples, family
from nodectl.report.series import AGAIN, KindOf


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
