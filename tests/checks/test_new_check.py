"""The check of docs/extending.md: one new file is listed, judged and documented without a line elsewhere."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nodectl.checks.system
from nodectl.checks import catalogue
from nodectl.cli.root import cli
from scripts.site.reference.judgements import pages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending.md"
# not as on the page: the page's own file may be there
NAME = "booted_long_ago"
MODULE = f"nodectl.checks.system.{NAME}"
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
    (tmp_path / f"{NAME}.py").write_text(block[1].replace('"uptime', f'"{NAME}'))
    monkeypatch.setattr(nodectl.checks.system, "__path__", [*nodectl.checks.system.__path__, str(tmp_path)])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forget()
    yield lambda *argv: CliRunner().invoke(cli, argv)
    forget()


def test_one_file_is_a_check_everywhere(run: Callable[..., Result]) -> None:
    listed = json.loads(run("--output", "json", "health", "--list").stdout)
    assert NAME in {check["check"] for check in listed["checks"]}
    assert listed["thresholds"][f"{NAME}_days"]["value"] == 180
    assert "not booted for longer than the threshold" in run("health", "--list").stdout
    replayed = ("--replay", "dgx-a100", "health")
    assert f"{NAME}: 15 days; expected 180 days or less" in run(*replayed, "--all").stdout
    findings = json.loads(run(*replayed, "--output", "json").stdout)["findings"]
    assert {(each["status"], each["actual"]) for each in findings if each["check"] == NAME} == {("ok", "15 days")}
    assert f'<testcase classname="node01.{NAME}"' in run(*replayed, "--output", "junit").stdout
    assert f'check="{NAME}",status="ok"' in run(*replayed, "--output", "prometheus").stdout
    page = pages()["checks/system.md"]
    assert f"## `{NAME}`\n\n- **Looks at** /proc/uptime\n- **Not ok when** warning: not booted for longer" in page
    assert f"- **Threshold** `{NAME}_days`, 180: the kernel's security updates take effect with a boot" in page


def test_it_is_gone_with_its_file() -> None:
    assert NAME not in catalogue.checks()
