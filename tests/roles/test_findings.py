"""From what verify tasks answer to findings, lines for people, and the end of a run."""

from nodectl.health.verify import lines
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.provision.events import Answer, findings_of
from nodectl.report.findings import finding_document


def test_a_task_that_looked_again_speaks_last() -> None:
    first = [
        finding_document(Finding("a", "limits", Status.FAILED, "memlock", actual="8192")),
        finding_document(Finding("a", "limits", Status.OK, "nofile")),
    ]
    second = [finding_document(Finding("a", "limits", Status.OK, "memlock", actual="unlimited"))]
    answers = [Answer("a", "t", {"findings": first}), Answer("a", "t", {"findings": second}), Answer("b", "t", {})]
    found = findings_of(answers)
    assert [(each.host, each.subject, each.status) for each in found] == [
        ("a", "memlock", Status.OK),
        ("a", "nofile", Status.OK),
    ]
    assert set(finding_document(found[0])) == set(first[0])


def test_what_a_node_says_is_not_trusted() -> None:
    raw = [{"check": "x", "status": "splendid"}, "no mapping", {"status": "ok"}]
    assert [each.status for each in findings_of([Answer("a", "t", {"findings": raw})])] == [Status.UNKNOWN, Status.OK]
    assert findings_of([Answer("a", "t", {"findings": "text"})]) == ()


def test_lines_for_people() -> None:
    findings = [
        Finding("a", "nic", Status.WARNING, "eth0", actual="odd"),
        Finding("a", "limits", Status.FAILED, "memlock", expected="unlimited", actual="8192", remedy="provision"),
        Finding("a", "limits", Status.OK, "nofile"),
    ]
    assert lines(findings, {Status.WARNING, Status.FAILED}) == [
        "failed limits: memlock: 8192; expected unlimited; try: provision",
        "warning nic: eth0: odd",
    ]
