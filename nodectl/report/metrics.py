"""Prometheus' metrics: one list of names, and the samples of health, probes, acceptances and jobs in base units."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nodectl.common.documents import values_of
from nodectl.common.resources import table
from nodectl.model.acceptance import Acceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.job import Job, JobState
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status, worst
from nodectl.report.series import AGAIN, KindOf

# a lone surrogate is a byte that was no UTF-8: of such a file node_exporter takes nothing at all
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# values of a metric's labels in their order, None for one that says nothing of the sample; a row ends with the sample
Labels = tuple[str | None, ...]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples; a sample may lack labels that say nothing of it."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


@cache
def every_metric() -> Mapping[str, Metric]:
    """Return all metrics by their names."""
    rows = table(Path(__file__).with_suffix(".yml"))
    return {row.name: row for row in values_of(Metric, [{"name": name, **row} for name, row in rows.items()])}


def family(name: str, rows: Iterable[Row]) -> str:
    """Return the metric in Prometheus' text format, or an empty text where it has no sample.

    A row is the values of the metric's labels in their order (None for a label that says nothing of it), then the
    sample; of rows with the same labels the last one counts.
    """
    metric, samples = every_metric()[name], {tuple(labels): value for *labels, value in rows}
    if not samples:
        return ""
    lines = [f"# HELP {name} {metric.about}", f"# TYPE {name} {metric.kind}"]
    for labels, value in samples.items():
        pairs = [(label, text) for label, text in zip(metric.labels, labels, strict=True) if text is not None]
        inside = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in pairs)
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


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
    states = ((host, status, int(status is worst(its))) for host, its in sorted(statuses.items()) for status in Status)
    wrong = (one for one in findings if one.status not in (Status.OK, Status.SKIPPED))
    kinds = every_metric()["nodectl_health_profiles_info"].labels[1:]
    return "".join(
        [
            family("nodectl_health_recorded_info", ((*one, 1) for one in sorted((recorded or {}).items()))),
            family("nodectl_health_findings", _occurrences((one.host, one.check, one.status) for one in findings)),
            family("nodectl_health_problem", ((one.host, one.check, one.subject, one.status, 1) for one in wrong)),
            family("nodectl_health_status", states),
            family(
                "nodectl_health_profiles_info",
                ((host, *(names.get(kind) for kind in kinds), 1) for host, names in sorted(profiles.items())),
            ),
            family("nodectl_health_last_run_timestamp_seconds", [(round(time_s, 3),)]),
        ]
    )


def _occurrences(labels: Iterable[tuple[str, str, str]]) -> list[Row]:
    return [(*one, number) for one, number in sorted(Counter(labels).items())]


class _Base(NamedTuple):
    """The metric for a unit, what one of the unit is in its base unit, and the value of the metric's last label."""

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
    **{f"{what}/s": _Base(_RATE, 1, (what,)) for what in ("files", "samples", "tokens")},
    "wrong results": _Base("nodectl_probe_wrong_results", 1),
    **{f"J/{what}": _Base("nodectl_probe_energy_joules", 1, (what,)) for what in ("sample", "token")},
}
# of a job that ended longer ago only the count remains: its labels would stay for as long as it lies on the hosts
_KEPT_S = 86400.0


def probe_metrics(
    measurements: Sequence[Measurement], findings: Sequence[Finding], kind_of: KindOf, *, time_s: float
) -> str:
    """Return the worst value of a kind for each host, its part of the floor, and the findings by status."""
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    for measurement in _complete_first(measurements):
        unit = measurement.unit
        base = BASES.get(unit, _Base("nodectl_probe_value", 1, (unit,)))
        is_worst = max if _less_is_better(measurement, kind_of) else min
        for series in _series(measurement, kind_of):
            samples, value = values[base.metric], measurement.value * base.factor
            labels = (*series, *base.labels)
            samples[labels] = is_worst(samples.get(labels, value), value)
    ended = ((probe, round(time_s, 3)) for probe in sorted({taken.probe for taken in measurements}))
    return "".join(
        [
            *(family(name, _rows_by_labels(values[name])) for name in sorted(values)),
            family("nodectl_probe_floor_ratio", _rows_by_labels(_ratios(measurements, kind_of))),
            family("nodectl_probe_findings", _occurrences((one.host, one.check, one.status) for one in findings)),
            family("nodectl_probe_last_run_timestamp_seconds", ended),
        ]
    )


def acceptance_metrics(acceptance: Acceptance, kind_of: KindOf) -> str:
    """Return each host's verdict and its status in each step, what the steps took, and the least part of a floor."""
    level, ended, hosts = acceptance.level, acceptance.ended, acceptance.hosts
    ratios: list[Row] = []
    for step in dict.fromkeys(row.step for row in acceptance.taken):
        of_step = [row.measurement for row in acceptance.taken if row.step == step]
        ratios += [(*labels, step, ratio) for *labels, ratio in _rows_by_labels(_ratios(of_step, kind_of))]
    accepted = [host.host for host in hosts if ended is not None and host.verdict.accepts]
    last = round(acceptance.began if ended is None else ended, 3)
    rows: dict[str, Iterable[Row]] = {
        "info": [(acceptance.id, level, acceptance.nature, acceptance.nodectl, 1)],
        "verdict": ((host.host, one, int(host.verdict is one)) for host in hosts for one in NodeVerdict),
        "step_info": ((host.host, step, status, 1) for host in hosts for step, status in host.steps.items()),
        "step_duration_seconds": (
            (step.name, step.scope, round(step.took_s, 3)) for step in acceptance.steps if step.took_s is not None
        ),
        "findings": _occurrences((one.finding.host, one.step, one.finding.status) for one in acceptance.seen),
        "floor_ratio": ratios,
        "complete": [(int(ended is not None),)],
        "accepted_timestamp_seconds": ((host, level, last) for host in accepted),
        "last_run_timestamp_seconds": [(last,)],
    }
    return "".join(family(f"nodectl_accept_{name}", samples) for name, samples in rows.items())


def jobs_metrics(jobs: Sequence[Job], *, time_s: float) -> str:
    """Return how many are in each state, and each that runs or ended within a day: state, failure, figures."""
    number = Counter(job.state for job in jobs)
    recent = [job for job in jobs if job.ended_at is None or time_s - job.ended_at < _KEPT_S]
    causes = [(job.id, job.first_failure) for job in recent if job.state is JobState.FAILED]

    def duration_s(job: Job) -> float:
        return round(max(0.0, (time_s if job.ended_at is None else job.ended_at) - job.created_at), 3)

    rows: dict[str, Iterable[Row]] = {
        "jobs": ((state, number[state]) for state in JobState),
        "job_info": ((job.id, job.operator, job.script, 1) for job in recent),
        "job_state": ((job.id, state, int(job.state is state)) for job in recent for state in JobState),
        "job_failure_info": (
            (job, cause.category, cause.kind, cause.host, 1) for job, cause in causes if cause is not None
        ),
        "job_restarts_total": ((job.id, job.attempt - 1) for job in recent),
        "job_duration_seconds": ((job.id, duration_s(job)) for job in recent),
        "job_start_timestamp_seconds": ((job.id, round(job.created_at, 3)) for job in recent),
        "job_hosts": ((job.id, len(job.hosts)) for job in recent),
        "job_unreachable_hosts": ((job.id, len(job.unreachable)) for job in recent),
        "jobs_last_run_timestamp_seconds": [(round(time_s, 3),)],
    }
    return "".join(family(f"nodectl_{name}", samples) for name, samples in rows.items())


def _complete_first(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [one for one in measurements if AGAIN not in one.conditions and one.conditions.get("complete") is not False]


def _series(measurement: Measurement, kind_of: KindOf) -> list[Labels]:
    """Return the labels for each host that took part; a place within it, such as a GPU's number, is no label."""
    kind = kind_of(measurement.probe)
    given = {name: value for name, value in measurement.conditions.items() if name not in kind.places}
    size = given.get("size_bytes")
    about = (measurement.probe, kind.subject(given), str(size) if isinstance(size, int) else None)
    return [(host, *about) for host in measurement.hosts]


def _less_is_better(measurement: Measurement, kind_of: KindOf) -> bool:
    return bool(kind_of(measurement.probe).lower_is_better(measurement.unit))


def _ratios(measurements: Iterable[Measurement], kind_of: KindOf) -> dict[Labels, float]:
    """Return by host and kind the least part of the floor; for a time it is the expected value by the measured one."""
    ratios: dict[Labels, float] = {}
    for measurement in _complete_first(measurements):
        expected, value = measurement.expected, measurement.value
        if not expected or (not value and _less_is_better(measurement, kind_of)):
            continue
        ratio = round(expected / value if _less_is_better(measurement, kind_of) else value / expected, 4)
        for labels in _series(measurement, kind_of):
            ratios[labels] = min(ratios.get(labels, ratio), ratio)
    return ratios


def _rows_by_labels(samples: Mapping[Labels, float]) -> list[Row]:
    order = sorted(samples, key=lambda labels: [text or "" for text in labels])
    return [(*labels, samples[labels]) for labels in order]
