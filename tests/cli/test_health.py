"""`nodectl health` on the lab's hosts: what it finds, how it ends, and the forms in which it says so."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Cli, LabUnderTest

pytestmark = pytest.mark.lab
WMEM = "net.ipv4.tcp_wmem"


def test_drift_on_one_host_is_found_there_alone(nodectl: Cli, lab4: LabUnderTest) -> None:
    one, other = lab4.hosts[0], lab4.hosts[1]
    before = lab4.ssh(one, f"sysctl -n {WMEM}")
    common = ("-i", lab4.inventory, "-l", f"{one},{other}", "health", "--output", "json", "--tuning", "article-20g")
    try:
        lab4.ssh(one, f"sysctl -w {WMEM}='4096 1048576 33554432'")
        lab4.ssh(other, f"sysctl -w {WMEM}='4096 16384 1000000'")
        done = nodectl(*common, check=False)
        document = json.loads(done.stdout)
        assert done.returncode == 1 and document["schema"] == "nodectl.health/1"
        findings = [f for f in document["findings"] if f["subject"] == WMEM]
        found = {f["host"]: f for f in findings if f["check"] == "kernel_settings"}
        assert (found[one]["status"], found[one]["remedy"]) == ("ok", "")
        assert found[other]["status"] == "failed" and found[other]["actual"] == "4096 16384 1000000"
        keys = {"host", "check", "subject", "status", "action", "expected", "actual", "remedy", "evidence"}
        assert set(found[other]) == keys and document["hosts"][other] == "failed"
        skipped = [f for f in document["findings"] if f["subject"] == "net.core.rmem_max"]
        assert {f["status"] for f in skipped} == {"skipped"} and "not settable" in skipped[0]["actual"]
    finally:
        for host in (one, other):
            lab4.ssh(host, f"sysctl -w {WMEM}='{before}'")


def test_the_hosts_own_view_for_node_exporter(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    inventory, target = tmp_path / "inventory.json", tmp_path / "collector" / "nodectl.prom"
    target.parent.mkdir()
    variables = {"ansible_connection": "local", "nodectl_stack": "cpu", "pytorch_venv": str(tmp_path / "none")}
    inventory.write_text(json.dumps({"all": {"hosts": {"this-host": variables}}}))
    argv = ("-i", str(inventory), "health", "--output", "prometheus", "--write", str(target))
    assert nodectl(*argv, check=False).returncode == 1, "there is no torch in that environment"
    families = {family.name: family for family in text_string_to_metric_families(target.read_text())}
    samples = [s for s in families["nodectl_health_problem"].samples if s.labels["check"] == "versions"]
    assert samples[0].labels["host"] == "this-host" and samples[0].labels["status"] == "failed"
    assert target.stat().st_mode & 0o777 == 0o644 and [p.name for p in target.parent.iterdir()] == ["nodectl.prom"]
