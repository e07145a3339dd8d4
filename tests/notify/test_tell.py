"""What this machine tells: hosts only when they change, an acceptance's verdicts, a certificate near its end once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.notify.settings import read_receivers
from nodectl.notify.tell import Desk, turned

FLEET = "/home/somebody/fleet/hosts.yml"
DAY_S = 86400.0


def desk(folder: Path, **keys: Any) -> Desk:
    given = [
        {"name": "a", "url": "http://127.0.0.1:9/", **keys},
        {"name": "b", "form": "command", "argv": ["true"], "on": ["job-end"]},
    ]
    return Desk(folder, FLEET, read_receivers(given, folder / "nodectl.toml"))


def finding(host: str, status: Status, check: str = "gpu_count") -> Finding:
    return Finding(host, check, status, actual="7 of 8")


def told(made: Desk) -> list[dict[str, Any]]:
    return [made.queue.read("a", name)["event"] for name in made.queue.waiting("a")]


def acceptance(ended: float | None, *verdicts: NodeVerdict) -> Acceptance:
    hosts = tuple(HostAcceptance(f"node{number}", verdict) for number, verdict in enumerate(verdicts, start=1))
    return Acceptance("20260901T000000Z-abcd", "standard", FLEET, 0.0, ended, "measured", "1", hosts=hosts)


def test_only_changes_are_told(tmp_path: Path) -> None:
    made = desk(tmp_path)
    for status in (Status.OK, Status.FAILED, Status.FAILED, Status.UNKNOWN, Status.WARNING, Status.OK):
        made.tell_health([finding("node1", status), finding("node2", Status.OK)])
    events = told(made)
    assert [(row["event"], row["host"], row["fleet"]) for row in events] == [
        ("host-failed", "node1", "hosts.yml"),
        ("host-recovered", "node1", "hosts.yml"),
    ]
    assert "gpu_count" in events[0]["text"] and "7 of 8" in events[0]["text"]
    assert not made.queue.waiting("b")


def test_a_host_that_fails_at_the_first_look_is_told_and_one_that_is_well_is_not(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.tell_health([finding("node1", Status.FAILED), finding("node2", Status.OK)])
    assert [row["host"] for row in told(made)] == ["node1"]


def test_a_host_that_goes_silent_has_failed_unless_all_do() -> None:
    silent = finding("node1", Status.UNKNOWN, "reach")
    before = {"node1": "well", "node2": "well"}
    assert turned(before, [silent, finding("node2", Status.OK)])["node1"][0] == "failed"
    assert turned(before, [silent, finding("node2", Status.UNKNOWN, "reach")]) == {}
    assert turned({"node1": "failed"}, [silent, finding("node2", Status.OK)]).get("node1") is None


def test_an_acceptance_tells_its_verdicts(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.tell_acceptance(acceptance(1.0, NodeVerdict.ACCEPTED, NodeVerdict.REJECTED))
    (event,) = told(made)
    assert (event["state"], event["id"]) == ("rejected", "acceptance-20260901T000000Z-abcd")
    assert "node2" in event["text"] and "node1" not in event["text"]


def test_a_certificate_near_its_end_is_told_once(tmp_path: Path) -> None:
    made, last = desk(tmp_path, certificate_days=30), acceptance(100 * DAY_S, NodeVerdict.ACCEPTED)
    made.tell_certificate(last, 120 * DAY_S)
    assert told(made) == []
    for day in (124, 125, 140):
        made.tell_certificate(last, day * DAY_S)
    assert [row["event"] for row in told(made)] == ["certificate"]
