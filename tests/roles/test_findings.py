"""From what verify tasks answer to findings, lines for people, and the end of a run."""

import importlib.util

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils.findings import compared, finding, not_settable
from nodectl.common.resources import share_dir
from nodectl.model.status import Status
from nodectl.provision.events import Answer
from nodectl.provision.findings import findings_of
from nodectl.report.findings import finding_document


def test_a_task_that_looked_again_speaks_last() -> None:
    first = [finding("limits", "failed", "memlock", actual="8192"), finding("limits", "ok", "nofile")]
    second = [finding("limits", "ok", "memlock", actual="unlimited")]
    answers = [Answer("a", "t", {"findings": first}), Answer("a", "t", {"findings": second}), Answer("b", "t", {})]
    found = findings_of(answers)
    assert [(each.host, each.subject, each.status) for each in found] == [
        ("a", "memlock", Status.OK),
        ("a", "nofile", Status.OK),
    ]
    assert set(finding_document(found[0])) == set(first[0]) | {"host"}


def test_what_a_node_says_is_not_trusted() -> None:
    raw = [{"check": "x", "status": "splendid"}, "no mapping", {"status": "ok"}]
    assert [each.status for each in findings_of([Answer("a", "t", {"findings": raw})])] == [Status.UNKNOWN, Status.OK]
    assert findings_of([Answer("a", "t", {"findings": "text"})]) == ()


def test_the_helper_of_modules() -> None:
    assert compared("c", "s", 1, "1", "mend")["status"] == "ok" and compared("c", "s", 1, "1", "mend")["remedy"] == ""
    assert compared("c", "s", 1, 2, "mend")["remedy"] == "mend"
    assert not_settable("c", "s", "1", "a container")["actual"] == "not settable on this host: a container"
    with pytest.raises(ValueError, match="no status"):
        finding("c", "fine")


def test_lines_for_people() -> None:
    path = share_dir() / "plugins" / "filter" / "findings.py"
    spec = importlib.util.spec_from_file_location("finding_lines", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = module.FilterModule().filters()["finding_lines"]
    findings = [
        finding("nic", "warning", "eth0", actual="odd"),
        finding("limits", "failed", "memlock", expected="unlimited", actual="8192", remedy="provision"),
        finding("limits", "ok", "nofile"),
    ]
    assert lines(findings, ["warning", "failed"]) == [
        "failed limits: memlock: 8192; expected unlimited; try: provision",
        "warning nic: eth0: odd",
    ]
