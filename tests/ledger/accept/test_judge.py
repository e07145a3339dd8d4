"""Who is to blame for what a step has seen, and what that makes of each host."""

from dataclasses import replace

import pytest

from nodectl.ledger.accept.judge import compared, leaving, statuses, verdicts
from nodectl.model.acceptance import Acceptance, NodeVerdict, Seen, Taken
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from tests.ledger.accept.made import NAMES, acceptance, done, found, means
from tests.ledger.history.measured import memory


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


def measured(value: float, spread: float | None = 0.01, host: str = "node01") -> Acceptance:
    """Return an acceptance of two hosts that measured the memory of one."""
    made = acceptance(done("memory", "node01", "node02"))
    taken = (Taken("memory", replace(memory(host, value), spread=spread)),)
    return replace(made, taken=taken, hosts=verdicts(made.steps, (), {}, means("node01", "node02")))


@pytest.mark.parametrize(
    ("value", "spread", "verdict"),
    [
        (96.0, 0.01, NodeVerdict.ACCEPTED),
        (90.0, 0.01, NodeVerdict.REJECTED),
        # within the spread; measured once
        (90.0, 0.2, NodeVerdict.ACCEPTED),
        (90.0, None, NodeVerdict.REJECTED),
        (110.0, 0.01, NodeVerdict.ACCEPTED),
    ],
)
def test_rejects_a_host_that_lost_its_last_accepted_figures(
    value: float, spread: float | None, verdict: NodeVerdict
) -> None:
    befores = dict.fromkeys(("node01", "node02"), replace(measured(100.0), id="before"))
    judged = compared(measured(value, spread), befores, 5.0, means("node01", "node02"))
    assert [row.verdict for row in judged.hosts] == [verdict, NodeVerdict.ACCEPTED]
    if verdict is NodeVerdict.REJECTED:
        (reason,) = judged.hosts[0].reasons
        assert reason.step == "memory" and "(accepted in before)" in reason.finding.expected


def test_unknown_if_no_figure_can_be_compared() -> None:
    judged = compared(measured(100.0), {"node01": measured(100.0, host="node02")}, 5.0, means("node01", "node02"))
    assert {row.verdict for row in judged.hosts} == {NodeVerdict.UNTOLD}
