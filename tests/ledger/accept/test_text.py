"""The plan and the verdicts as an operator reads them."""

from dataclasses import replace

from nodectl.ledger.accept.judge import verdicts
from nodectl.model.acceptance import Seen
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.report.acceptance import acceptance_text
from tests.ledger.accept.made import acceptance, done, found, means


def test_alike_hosts_are_one_row_and_the_worst_comes_first() -> None:
    seen = (
        Seen("tcp", found("node03", Status.FAILED, actual="receives slowly")),
        Seen("health", Finding("node05", "disk", Status.WARNING, actual="nearly full", remedy="make room")),
        Seen("health", Finding("node06", "disk", Status.WARNING, actual="nearly full", remedy="make room")),
    )
    begun = acceptance(done("health"), done("tcp"), seen=seen)
    told = replace(begun, hosts=verdicts(begun.steps, seen, {"node03": "tcp"}, means()))
    text = acceptance_text(told, 100)
    rows = text.split("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["node03", "node[05-06]", "node[01-02,04,07-08]"]
    assert "tcp FAILED, 1 ok" in rows[0]
    assert "WARNING  node[05-06]  health, disk: nearly full\n    try: make room" in text
    assert text.endswith("5 accepted, 2 accepted with remarks, 1 rejected; 2 s, planned were 2 s; figures: lab")
