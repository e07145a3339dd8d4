"""A real Prometheus takes what nodectl writes: metrics, alert rules with their cases, and the dashboard's queries."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nodectl.checks.gpu.xid import catalogue
from nodectl.common.resources import data_dir
from tests.report.metric_samples import all_texts, dcgm_text
from tests.report.prometheus_server import Server, node_exporter, promtool, serving, telling

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
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    cases = yaml.safe_load(CASES.read_text())
    fired = {case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == rules
    path = tmp_path / "cases.yml"
    path.write_text(yaml.safe_dump({**cases, "rule_files": [str(RULES)]}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that scrapes a real node_exporter with all of nodectl's files, and what two dcgm-exporters tell."""
    folder = tmp_path_factory.mktemp("prometheus")
    textfiles = folder / "textfiles"
    textfiles.mkdir()
    for command, text in all_texts().items():
        (textfiles / f"nodectl-{command}.prom").write_text(text)
    with ExitStack() as running:
        targets = {"node": running.enter_context(node_exporter(folder, textfiles))}
        # the label of today, and that of older ones
        for host, label in (("gpu01", "hostname"), ("gpu02", "Hostname")):
            targets[f"dcgm-{host}"] = running.enter_context(telling(dcgm_text(host, label)))
        server = running.enter_context(serving(folder, RULES, targets))
        until = time.monotonic() + 60
        # rules, too, have been evaluated over what was scraped
        while len(server.query("up == 1")) < len(targets) or len(server.query("nodectl:gpus")) < 2:
            assert time.monotonic() < until, server.asked("targets?state=active")
            time.sleep(0.2)
        yield server


def test_no_exporter_tells_a_series_twice(watched: Server) -> None:
    """Prometheus keeps one of two samples of the same labels, and counts nothing: what was told is compared with it."""
    for target in watched.asked("targets?state=active")["activeTargets"]:
        with urlopen(f"http://{target['labels']['instance']}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        series = Counter((sample.name, *sorted(sample.labels.items())) for each in families for sample in each.samples)
        assert [name for name, times in series.items() if times > 1] == [], target["scrapeUrl"]
        own = [family.name for family in families if family.name.startswith(("nodectl_", "DCGM_"))]
        assert len(own) > 10 and not target["lastError"]
    assert [series["value"][1] for series in watched.query("node_textfile_scrape_error")] == ["0"]


def test_each_panel_of_the_dashboard_shows_something(watched: Server) -> None:
    for panel in DASHBOARD["panels"]:
        target, title = panel["targets"][0], panel["title"]
        found = watched.query(target["expr"].replace("$host", ".*"))
        assert found, f"{title}: nothing for {target['expr']}"
        labels = {label for series in found for label in series["metric"]}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, title
        of_host = watched.query(target["expr"].replace("$host", "nobody"))
        assert of_host == [] or "$host" not in target["expr"], title
    both = {
        series["metric"]["host"] for series in watched.query(_panel("GPUs at work").replace("$host", "gpu01|gpu02"))
    }
    assert both == {"gpu01", "gpu02"}, "by either label"


def test_rules_are_evaluated_without_an_error_and_an_xid_fires(watched: Server) -> None:
    rules = [rule for group in watched.asked("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
    fired = {(series["metric"]["alertname"], series["metric"]["host"]) for series in watched.query('ALERTS{gpu="1"}')}
    assert fired == {("NodectlGpuXid", "gpu01"), ("NodectlGpuXid", "gpu02")}


def _panel(title: str) -> str:
    (expr,) = (panel["targets"][0]["expr"] for panel in DASHBOARD["panels"] if panel["title"] == title)
    return str(expr)


def test_an_xid_alerts_where_nodectls_catalogue_calls_it_a_failure() -> None:
    (codes,) = re.findall(r'err_code=~"([^"]+)"', RULES.read_text().replace('\\"', '"').replace("\\\n          ", ""))
    assert [int(code) for code in codes.split("|")] == [n for n, xid in catalogue().items() if xid.status == "failed"]
