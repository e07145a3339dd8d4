"""Who is to blame for what a step has seen, and what that makes of each host."""

from nodectl.ledger.accept.judge import leaving, statuses, verdicts
from nodectl.model.acceptance import NodeVerdict, Seen
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from tests.ledger.accept.made import NAMES, done, found, means


def test_a_host_that_fails_is_the_only_one_that_leaves() -> None:
    step = done("tcp")
    seen = [found("node03", Status.FAILED), found("node05", Status.WARNING)]
    told = statuses(step, seen)
    assert told["node03"] is Status.FAILED
    assert told["node05"] is Status.WARNING
    assert {told[name] for name in NAMES if name not in ("node03", "node05")} == {Status.OK}
    assert leaving(step, seen, ["node07", "elsewhere"]) == {"node03", "node07"}


def test_a_path_convicts_neither_end_and_a_known_culprit_explains_it() -> None:
    step = done("tcp")
    path = found("node01", Status.FAILED, "node01", "node02", kind="path")
    assert statuses(step, [path])["node01"] is statuses(step, [path])["node02"] is Status.UNKNOWN
    assert not leaving(step, [path], [])
    with_culprit = statuses(step, [path, found("node02", Status.FAILED)])
    assert (with_culprit["node01"], with_culprit["node02"]) == (Status.OK, Status.FAILED)
    with_lost = statuses(step, [path, found("node01", Status.UNKNOWN, subject="lost")])
    assert (with_lost["node01"], with_lost["node02"]) == (Status.UNKNOWN, Status.OK)


def test_verdicts_and_their_reasons() -> None:
    seen = (
        Seen("health", Finding("node01", "disk", Status.WARNING, actual="nearly full")),
        Seen("health", Finding("node02", "gpus", Status.FAILED, actual="7 of 8")),
        Seen("tcp", found("node04", Status.UNKNOWN, subject="lost")),
        Seen("tcp", Finding("node05", "tcp", Status.SKIPPED, actual="no such thing")),
    )
    steps = (done("health"), done("tcp", *[name for name in NAMES if name != "node02"]))
    by_host = {each.host: each for each in verdicts(steps, seen, {"node02": "health", "node04": "tcp"}, means())}
    assert {name: by_host[name].verdict for name in ("node01", "node02", "node03", "node04", "node05")} == {
        "node01": NodeVerdict.REMARKS,
        "node02": NodeVerdict.REJECTED,
        "node03": NodeVerdict.ACCEPTED,
        "node04": NodeVerdict.UNTOLD,
        "node05": NodeVerdict.ACCEPTED,
    }
    assert (by_host["node02"].left_after, by_host["node02"].steps) == ("health", {"health": Status.FAILED})
    assert [reason.finding.actual for reason in by_host["node02"].reasons] == ["7 of 8"]
    assert not by_host["node05"].reasons
