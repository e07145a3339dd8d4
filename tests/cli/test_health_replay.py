"""`nodectl health` on recordings: the bundled ones are fine, what is spoiled is found, and every form says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodectl.health.fleet import Health, look
from nodectl.health.history import StateFile
from nodectl.model.host import Host
from nodectl.recordings.folder import bundled, open_recording
from nodectl.recordings.source import ReplaySource, replay_source
from tests.conftest import Cli
from tests.lab.recorded_host import another_machine

HOSTS = ("n1", "n2", "n3")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three nodes of the bundled DGX A100, each booted for itself."""
    source = bundled()["dgx-a100"]
    shutil.copy(source / "recording.yml", tmp_path)
    for name in HOSTS:
        another_machine(source / "node01", tmp_path / name)
    return tmp_path


def spoil(fleet: Path, host: str, key: str, old: str, new: str) -> None:
    path = fleet / host / f"{key}.out"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def bad(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (each["host"], each["check"], each["status"])
        for each in document["findings"]
        if each["status"] not in ("ok", "skipped")
    }


def run(nodectl: Cli, folder: Path | str, *more: str) -> dict[str, Any]:
    done = nodectl("--replay", str(folder), "health", "--output", "json", *more, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    document["exit"] = done.returncode
    return document


@pytest.mark.parametrize("name", ["dgx-a100", "h100-8", "rtx4090-3"])
def test_a_bundled_recording_is_healthy(nodectl: Cli, name: str) -> None:
    document = run(nodectl, name)
    assert bad(document) == set() and document["exit"] == 0
    assert document["recorded"] == name and document["hosts"] == {"node01": "ok"}


def test_what_one_node_has_for_itself_is_found_there_alone(nodectl: Cli, fleet: Path) -> None:
    spoil(fleet, "n2", "proc-driver-nvidia", "580.95.05", "580.82.07")
    spoil(fleet, "n3", "lscpu", "Socket(s):", "Socket(s):  1\nOld socket(s):")
    document = run(nodectl, fleet)
    hosts = {(host, check) for host, check, _ in bad(document)}
    assert ("n2", "fleet_driver") in hosts and ("n3", "fleet_cpu") in hosts
    assert {host for host, _ in hosts} == {"n2", "n3"}


def test_counters_are_judged_by_their_change(nodectl: Cli, fleet: Path) -> None:
    counter = "mlx5_0/ports/1/counters/symbol_error:"
    assert run(nodectl, fleet)["exit"] == 0
    spoil(fleet, "n1", "ib-sysfs", f"{counter}0", f"{counter}7")
    assert bad(run(nodectl, fleet)) == {("n1", "ib_errors", "warning")}
    assert bad(run(nodectl, fleet)) == set(), "no more since"


def test_a_folder_with_some_files_is_unknown_in_the_rest(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    shutil.copy(bundled()["dgx-a100"] / "node01" / "ibstat.out", tmp_path / "node1")
    document = run(nodectl, tmp_path, "--hardware", "dgx-a100", "--stack", "cu128")
    assert document["exit"] == 3 and document["hosts"] == {"node1": "unknown"}
    told = {each["check"]: each["status"] for each in document["findings"]}
    assert told["ib_count"] == "ok" and told["memory_available"] == "unknown"
    assert not [each for each in document["findings"] if each["status"] == "failed"]


def test_every_form_is_valid_and_says_that_it_is_recorded(nodectl: Cli, fleet: Path) -> None:
    spoil(fleet, "n2", "mounts", "/ ", "/ ")
    (fleet / "n2" / "uname.out").write_text("Linux 5.4.0-\x1b[31mred\x07<b>&\x00 x86_64\n")
    argv = ("--replay", str(fleet), "health")
    table = nodectl(*argv, check=False)
    assert "\x1b" not in table.stdout and "fleet_kernel" in table.stdout
    assert "recorded: n[1-3] from dgx-a100" in table.stderr
    line = nodectl(*argv, "--one-line", "--strict", check=False)
    assert line.returncode == 1 and line.stdout.count("\n") == 1 and line.stdout.startswith("warning: n2 fleet_kernel")
    suites = ET.fromstring(nodectl(*argv, "--output", "junit", "--strict", check=False).stdout)  # noqa: S314 - our own
    assert [suite.get("name") for suite in suites] == list(HOSTS) and suites.get("failures") == "1"
    # all that Jenkins' schema (junit-10.xsd) has for them: who reads by it refuses another attribute
    assert set(suites.keys()) <= {"name", "time", "tests", "failures", "errors"}
    for suite in suites:
        assert set(suite.keys()) <= {"name", "tests", "failures", "errors", "skipped", "timestamp", "hostname", "time"}
        assert int(suite.get("skipped", "-1")) == len(suite.findall("testcase/skipped"))
    text = nodectl(*argv, "--output", "prometheus", check=False).stdout
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["nodectl_health_recorded_info"].samples[0].labels["recording"] == "dgx-a100"
    everything = nodectl(*argv, "--all", check=False).stdout
    assert "OK  n[1-3]  ib_count" in everything


def test_watching_tells_what_changed(nodectl: Cli, fleet: Path) -> None:
    done = nodectl("--replay", str(fleet), "health", "--watch", "1", "--rounds", "2", check=False)
    assert done.returncode == 0 and "no change; " in done.stdout.splitlines()[-1]
    assert nodectl("health", "--rounds", "2", check=False).returncode == 2


def test_the_list_of_checks(nodectl: Cli) -> None:
    document = json.loads(nodectl("health", "--list", "--output", "json").stdout)
    assert len(document["checks"]) >= 150
    assert {"check", "asked_by", "reads", "fires"} == set(document["checks"][0])
    assert {"health", "launch"} == {check["asked_by"] for check in document["checks"]}
    ids = [check["check"] for check in document["checks"]]
    assert len(set(ids)) == len(ids), "every check has one id"
    assert "disk_free_mib" in nodectl("health", "--list").stdout


@pytest.fixture
def looked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ReplaySource], Health]:
    folder = tmp_path_factory.mktemp("state")
    return lambda source: look(source, names={}, extra_dirs=(), state=StateFile(folder, "f"))


def with_variables(source: ReplaySource, **variables: object) -> ReplaySource:
    hosts = tuple(Host(h.name, h.address, variables={**h.variables, **variables}) for h in source.hosts)
    return ReplaySource(hosts, source.folders, source.recorded)


def test_accepted_findings_and_site_thresholds(fleet: Path, looked: Callable[[ReplaySource], Health]) -> None:
    spoil(fleet, "n2", "uname", "5.", "4.")
    source = replay_source(open_recording(str(fleet)), None)
    accept = [{"check": "fleet_kernel", "until": "2999-01-01", "why": "being upgraded"}]
    found = looked(with_variables(source, nodectl_health={"accept": accept, "thresholds": {"shm_mib": 10**9}}))
    told = {(each.host, each.check): each for each in found.findings}
    assert told["n2", "fleet_kernel"].status.value == "skipped"
    assert told["n1", "shared_memory"].status.value == "warning"


def test_a_variable_of_the_command_line_goes_before_the_recording_s(nodectl: Cli, fleet: Path) -> None:
    done = nodectl(
        "--replay", str(fleet), "-e", '{"nodectl_hardware": "4 x nosuch"}', "--output", "json", "health", check=False
    )
    found = bad(json.loads(done.stdout))
    assert {(host, "profiles", "unknown") for host in HOSTS} <= found and done.returncode != 0
