"""`--output prometheus` of probes and jobs, into a file as node_exporter reads it; what `nodectl metrics` prints."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Cli


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"all": {"hosts": {"this-host": {"ansible_connection": "local"}}}}))
    return str(path)


def families(path: Path) -> Iterable[Metric]:
    assert path.stat().st_mode & 0o777 == 0o644
    return text_string_to_metric_families(path.read_text())


def test_a_probe_writes_its_figures_for_node_exporter(nodectl: Cli, inventory: str, tmp_path: Path) -> None:
    target = tmp_path / "nodectl-probe.prom"
    short = ("--duration", "0.01", "--repetitions", "1")
    argv = ("-i", inventory, "probe", "memory", *short, "--force", "--output", "prometheus", "--write", str(target))
    done = nodectl(*argv, check=False)
    assert done.stdout == ""
    found = {family.name: family.samples for family in families(target)}
    bandwidth = found["nodectl_probe_bandwidth_bytes_per_second"]
    assert {sample.labels["host"] for sample in bandwidth} == {"this-host"}
    assert all(sample.value > 1e6 and sample.labels["probe"] == "memory" for sample in bandwidth)
    assert found["nodectl_probe_last_run_timestamp_seconds"][0].labels == {"probe": "memory"}
