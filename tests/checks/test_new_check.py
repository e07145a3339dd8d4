"""The check of docs/extending.md: one new file is listed, judged and documented without a line elsewhere."""

import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nodectl.checks.system
from nodectl.checks import catalogue
from nodectl.cli.root import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending.md"
MODULE = "nodectl.checks.system.uptime"
CACHED = (catalogue.modules, catalogue.judgements, catalogue.checks, catalogue.thresholds)


def forget() -> None:
    """What the catalogue has found so far."""
    sys.modules.pop(MODULE, None)
    for function in CACHED:
        function.cache_clear()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Runs nodectl in this process, with the example's file beside the checks of the system."""
    block = re.search(r"```python\n(# nodectl/checks/system/uptime\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    (tmp_path / "uptime.py").write_text(block[1])
    monkeypatch.setattr(nodectl.checks.system, "__path__", [*nodectl.checks.system.__path__, str(tmp_path)])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forget()
    yield lambda *argv: CliRunner().invoke(cli, argv)
    forget()


def test_one_file_is_a_check_everywhere(run: Callable[..., Result]) -> None:
    listed = json.loads(run("--output", "json", "health", "--list").stdout)
    assert "uptime" in {check["check"] for check in listed["checks"]}
    assert listed["thresholds"]["uptime_days"]["value"] == 180
    assert "not booted for longer than the threshold" in run("health", "--list").stdout
    replayed = ("--replay", "dgx-a100", "health")
    assert "uptime: 15 days; expected 180 days or less" in run(*replayed, "--all").stdout
    findings = json.loads(run(*replayed, "--output", "json").stdout)["findings"]
    assert {(each["status"], each["actual"]) for each in findings if each["check"] == "uptime"} == {("ok", "15 days")}
    assert '<testcase classname="node01.uptime"' in run(*replayed, "--output", "junit").stdout
    assert 'check="uptime",status="ok"' in run(*replayed, "--output", "prometheus").stdout
    tables = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["health_tables"]()
    assert ["`uptime`", "/proc/uptime", "warning: not booted for longer than the threshold"] in tables["checks"]
    assert ["`uptime_days`", "180", "the kernel's security updates take effect with a boot"] in tables["thresholds"]


def test_it_is_gone_with_its_file() -> None:
    assert "uptime" not in catalogue.checks()
