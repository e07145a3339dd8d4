"""The Grafana dashboard of what nodectl writes for Prometheus, as its JSON model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

_HOST = 'host=~"$host"'
_WIDTH, _HEIGHT = 24, 8
# the model that Grafana 8 and later read; newer ones convert it as they load it
_SCHEMA = 36


# each has a metric that says when it was last done
_LOOKS = ("health", "jobs", "probe", "accept")


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with one query; `legend` names the labels that tell its series apart, `width` is of 24."""

    title: str
    about: str
    kind: Literal["stat", "timeseries", "table", "state-timeline"]
    expr: str
    legend: str = ""
    unit: str = "none"
    width: int = 12


PANELS = (
    Panel(
        "Hosts by health",
        "The worst status of each host at its last look.",
        "stat",
        f"sum by (status) (nodectl_health_status{{{_HOST}}})",
        "{{status}}",
        width=12,
    ),
    Panel(
        "Hosts by verdict",
        "What the last acceptance said of each.",
        "stat",
        f"sum by (verdict) (nodectl_accept_verdict{{{_HOST}}})",
        "{{verdict}}",
        width=12,
    ),
    Panel(
        "Health over time",
        "A line a host: its worst status.",
        "state-timeline",
        f"nodectl_health_status{{{_HOST}}} == 1",
        "{{host}} {{status}}",
        width=24,
    ),
    Panel(
        "Problems",
        "Findings that are neither ok nor skipped.",
        "table",
        f"nodectl_health_problem{{{_HOST}}}",
    ),
    Panel(
        "Acceptance by step",
        "Each host's status in each step of its last acceptance.",
        "table",
        f"nodectl_accept_step_info{{{_HOST}}}",
    ),
    Panel(
        "Age of the last acceptance",
        "Since a host was last accepted; one that is not has no line.",
        "timeseries",
        f"time() - nodectl_accept_accepted_timestamp_seconds{{{_HOST}}}",
        "{{host}} {{level}}",
        "s",
    ),
    Panel(
        "Share of the floor",
        "The worst part of the hardware profile's floor, by probe; below 100 % it is missed.",
        "timeseries",
        f"min by (host, probe) (nodectl_probe_floor_ratio{{{_HOST}}})",
        "{{host}} {{probe}}",
        "percentunit",
    ),
    Panel(
        "Bandwidth",
        "The least that was measured with the host: memory, PCIe, NVLink, network, collectives.",
        "timeseries",
        f"nodectl_probe_bandwidth_bytes_per_second{{{_HOST}}}",
        "{{host}} {{probe}} {{what}} {{size_bytes}}",
        "Bps",
    ),
    Panel(
        "Floating-point operations",
        "The slowest device of the host, by precision.",
        "timeseries",
        f"nodectl_probe_flops{{{_HOST}}}",
        "{{host}} {{what}}",
        "flops",
    ),
    Panel(
        "Bandwidth against its month",
        "The value as a part of its own median of 30 days: drift is a slope here.",
        "timeseries",
        f"nodectl_probe_bandwidth_bytes_per_second{{{_HOST}}}"
        f" / quantile_over_time(0.5, nodectl_probe_bandwidth_bytes_per_second{{{_HOST}}}[30d])",
        "{{host}} {{probe}} {{what}} {{size_bytes}}",
        "percentunit",
    ),
    Panel(
        "Findings of probes",
        "Failed and unknown ones by probe.",
        "timeseries",
        f'sum by (host, check, status) (nodectl_probe_findings{{{_HOST}, status=~"failed|unknown|warning"}})',
        "{{host}} {{check}} {{status}}",
    ),
    Panel("Jobs by state", "On the hosts that were asked.", "timeseries", "sum by (state) (nodectl_jobs)", "{{state}}"),
    Panel(
        "Duration of jobs",
        "Of those that run, and of those that ended within a day.",
        "timeseries",
        "nodectl_job_duration_seconds",
        "{{job_id}}",
        "s",
    ),
    Panel("Restarts", "Attempts after the first.", "timeseries", "nodectl_job_restarts_total", "{{job_id}}"),
    Panel("Failed jobs", "What ended each first: class, kind and host.", "table", "nodectl_job_failure_info"),
    Panel(
        "Age of the figures",
        "Since health was looked at, jobs were listed and probes ran.",
        "timeseries",
        " or ".join(
            f'label_replace(time() - nodectl_{of}_last_run_timestamp_seconds, "of", "{of}", "", "")' for of in _LOOKS
        ),
        "{{of}} {{probe}} {{instance}}",
        "s",
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the model that Grafana imports; it asks for the Prometheus data source as it does so."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "title": "nodectl: GPU fleet",
        "uid": "nodectl-fleet",
        "tags": ["nodectl", "gpu"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {
                    "name": "host",
                    "type": "query",
                    "label": "Host",
                    "datasource": source,
                    "query": "label_values(nodectl_health_status, host)",
                    "refresh": 2,
                    "sort": 3,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": list(_panels(source)),
    }


def _panels(source: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the panels from left to right, in as many rows as they need."""
    left, top = 0, 0
    for number, panel in enumerate(PANELS, 1):
        if left + panel.width > _WIDTH:
            left, top = 0, top + _HEIGHT
        is_table = panel.kind == "table"
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.about,
            "type": panel.kind,
            "datasource": source,
            "gridPos": {"x": left, "y": top, "w": panel.width, "h": _HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": [
                {
                    "refId": "A",
                    "datasource": source,
                    "expr": panel.expr,
                    "legendFormat": panel.legend,
                    "instant": is_table or panel.kind == "stat",
                    "range": not is_table and panel.kind != "stat",
                    "format": "table" if is_table else "time_series",
                }
            ],
            # a table shows the labels, not that each row is 1 and when it was scraped
            "transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}]
            if is_table
            else [],
        }
        left += panel.width
