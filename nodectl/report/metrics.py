"""The metrics that nodectl writes, in one list: text, dashboard and alerts have no name that is not here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
