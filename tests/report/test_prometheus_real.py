"""A real Prometheus takes what nodectl writes: metrics, alert rules with their cases, and the dashboard's queries."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nodectl.common.resources import data_dir
from tests.report.metric_samples import all_texts
from tests.report.prometheus_server import promtool, serving

RULES = data_dir() / "prometheus" / "alerts.yml"
DASHBOARD = json.loads(RULES.with_name("dashboard.json").read_text())
CASES = Path(__file__).with_name("alert_cases.yml")


@pytest.mark.parametrize("command", all_texts())
def test_promtool_finds_nothing_wrong_with_the_metrics(command: str) -> None:
    done = promtool("check", "metrics", text=all_texts()[command])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_alert_rules_are_rules_and_each_fires_when_it_should(tmp_path: Path) -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    cases = yaml.safe_load(CASES.read_text())
    fired = {case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == rules
    path = tmp_path / "cases.yml"
    path.write_text(yaml.safe_dump({**cases, "rule_files": [str(RULES)]}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_panel_of_the_dashboard_shows_something(tmp_path: Path) -> None:
    now = time.time()
    blocks = tmp_path / "data"
    told = tmp_path / "metrics.om"
    told.write_text(open_metrics([now - age for age in (900, 600, 300, 60)]))
    made = promtool("tsdb", "create-blocks-from", "openmetrics", told, blocks)
    assert made.returncode == 0, made.stderr
    with serving(blocks, RULES) as server:
        for panel in DASHBOARD["panels"]:
            target, title = panel["targets"][0], panel["title"]
            found = server.query(target["expr"].replace("$host", ".*"), now - 30)
            assert found, f"{title}: nothing for {target['expr']}"
            labels = {label for series in found for label in series["metric"]}
            # it is the scraping that names the instance
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"} <= labels, title
        first = DASHBOARD["panels"][0]["targets"][0]["expr"]
        assert server.query(first.replace("$host", "nobody"), now - 30) == []


def open_metrics(moments: list[float]) -> str:
    """What all commands write, as if it had been scraped at these moments."""
    lines = []
    for text in all_texts().values():
        for family in text_string_to_metric_families(text):
            lines.append(f"# TYPE {family.name} {family.type}")
            for sample in family.samples:
                labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
                lines += [f"{sample.name}{{{labels}}} {sample.value} {moment:.3f}" for moment in moments]
    return "\n".join([*lines, "# EOF", ""])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
