"""Hosts that failed or recovered since the last look."""

from __future__ import annotations

from pathlib import Path

from nodectl.health.events import Change, compare, look
from nodectl.model.finding import Finding
from nodectl.model.status import Status

FLEET = "/home/somebody/fleet/hosts.yml"


def finding(host: str, status: Status, check: str = "gpu_count") -> Finding:
    return Finding(host, check, status, actual="7 of 8")


def test_only_changes_are_reported(tmp_path: Path) -> None:
    changes: list[Change] = []
    for status in (Status.OK, Status.FAILED, Status.FAILED, Status.UNKNOWN, Status.WARNING, Status.OK):
        changes += look(tmp_path, FLEET, [finding("node1", status), finding("node2", Status.OK)])
    # a host of which something is unknown has not failed
    assert [(change.host, bool(change.findings)) for change in changes] == [("node1", True), ("node1", False)]
    assert changes[0].findings == (finding("node1", Status.FAILED),)
    assert look(tmp_path, "another fleet", [finding("node1", Status.FAILED)])


def test_reports_a_failure_at_the_first_look_and_a_damaged_file_is_a_first_look(tmp_path: Path) -> None:
    findings = [finding("node1", Status.FAILED), finding("node2", Status.OK)]
    assert [change.host for change in look(tmp_path, FLEET, findings)] == ["node1"]
    (path,) = (tmp_path / "events").iterdir()
    path.write_text("{")
    assert [change.host for change in look(tmp_path, FLEET, findings)] == ["node1"]
    assert look(tmp_path, FLEET, findings) == ()


def test_a_host_that_goes_silent_has_failed_unless_all_do() -> None:
    silent = finding("node1", Status.UNKNOWN, "reach")
    before = {"node1": "well", "node2": "well"}
    assert compare(before, [silent, finding("node2", Status.OK)]) == (Change("node1", (silent,)),)
    assert compare(before, [silent, finding("node2", Status.UNKNOWN, "reach")]) == ()
    assert compare({"node1": "failed", "node2": "well"}, [silent, finding("node2", Status.OK)]) == ()
