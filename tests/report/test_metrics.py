"""Prometheus metrics of probes, acceptances and jobs: base units, the worst of each host, and names from one list."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nodectl.common.resources import data_dir
from nodectl.model.job import JobState
from nodectl.probes.registry import declarations
from nodectl.report.metrics import BASES, every_metric
from tests.report.metric_samples import DCGM, NOW, all_texts

TEXTS = all_texts()
ALERTS = yaml.safe_load((data_dir() / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
PANELS = json.loads((data_dir() / "prometheus" / "dashboard.json").read_text(encoding="utf-8"))["panels"]
Series = dict[tuple[tuple[str, str], ...], float]


def samples(command: str, name: str) -> Series:
    """By labels, of the family of this name."""
    families = text_string_to_metric_families(TEXTS[command])
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def of(series: Series, **labels: str) -> list[float]:
    return [value for found, value in series.items() if labels.items() <= dict(found).items()]


def test_every_unit_of_a_probe_has_its_base_unit() -> None:
    units = {unit.name for probe in declarations().values() for unit in probe.results.units}
    assert units <= set(BASES) and {base.metric for base in BASES.values()} <= set(every_metric())


@pytest.mark.parametrize("command", TEXTS)
def test_what_is_written_is_what_is_listed(command: str) -> None:
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(TEXTS[command])
        for sample in family.samples
    }
    assert all(name in every_metric() and labels <= set(every_metric()[name].labels) for name, labels in found.items())
    prefix = f"nodectl_{command.rstrip('s')}"
    assert set(found) == {name for name in every_metric() if name.startswith(prefix)}
    assert TEXTS[command].count("# TYPE") == len(found)


def test_two_files_never_hold_the_same_series() -> None:
    lines = [line.rpartition(" ")[0] for text in TEXTS.values() for line in text.splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines)), "node_exporter refuses all textfiles then"


def test_values_of_probes_are_the_worst_of_the_host_in_base_units() -> None:
    (flops,) = of(samples("probe", "nodectl_probe_flops"), host="gpu01")
    assert flops == 240e12, "of two GPUs the slower one, and not what was measured again"
    bandwidth = samples("probe", "nodectl_probe_bandwidth_bytes_per_second")
    assert of(bandwidth, host="gpu01", probe="tcp") == of(bandwidth, host="gpu02", what="streams 1") == [5e9]
    assert of(samples("probe", "nodectl_probe_time_seconds"), host="gpu02") == pytest.approx([25e-6])
    assert of(samples("probe", "nodectl_probe_rate_per_second"), of="files") == [5000]
    assert of(samples("probe", "nodectl_probe_wrong_results"), host="gpu02") == [3]
    assert of(samples("probe", "nodectl_probe_energy_joules"), per="token") == [0.25]
    assert of(samples("probe", "nodectl_probe_value"), unit="furlongs") == [7]


def test_the_share_of_a_floor_is_below_1_where_it_is_missed() -> None:
    ratios = samples("probe", "nodectl_probe_floor_ratio")
    assert of(ratios, probe="gemm") == [round(240 / 269, 4)]
    assert of(ratios, probe="latency") == [0.8, 0.8], "of a time the longest: 25 us of at most 20"


def test_an_acceptance_tells_verdicts_and_when_each_was_accepted() -> None:
    verdicts = samples("accept", "nodectl_accept_verdict")
    assert of(verdicts, host="gpu01", verdict="rejected") == of(verdicts, verdict="accepted with remarks", host="gpu02")
    assert sum(verdicts.values()) == 2 and len(verdicts) == 8
    (accepted,) = samples("accept", "nodectl_accept_accepted_timestamp_seconds").items()
    assert accepted == ((("host", "gpu02"), ("level", "standard")), NOW - 60)
    assert of(samples("accept", "nodectl_accept_step_info"), host="gpu01", step="gemm", status="failed") == [1]
    assert of(samples("accept", "nodectl_accept_step_duration_seconds"), step="gemm") == [12.346]
    assert of(samples("accept", "nodectl_accept_floor_ratio"), host="gpu01", step="gemm") == [round(240 / 269, 4)]


def test_jobs_are_counted_and_the_recent_ones_told() -> None:
    counts = samples("jobs", "nodectl_jobs")
    assert len(counts) == len(JobState) and of(counts, state="finished") == [1] and sum(counts.values()) == 3
    durations = samples("jobs", "nodectl_job_duration_seconds")
    assert {dict(labels)["job_id"]: value for labels, value in durations.items()} == {"failed": 4000, "running": 600}
    failed = samples("jobs", "nodectl_job_failure_info")
    assert [dict(labels) for labels in failed] == [
        {"job_id": "failed", "class": "gpu_memory", "kind": "exception", "host": "gpu02"}
    ]
    assert of(samples("jobs", "nodectl_job_restarts_total"), job_id="running") == [3]


def test_alerts_and_dashboard_name_nothing_that_is_not_written() -> None:
    exprs = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    exprs += [target["expr"] for panel in PANELS for target in panel["targets"]]
    named = {name for expr in exprs for name in re.findall(r"\bnodectl_[a-z_]+|\bDCGM_[A-Z_]+", expr)}
    assert named <= {*every_metric(), *DCGM} and len(named) > 20
