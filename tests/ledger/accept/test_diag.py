"""What `dcgmi diag` says of a host becomes findings about its GPUs."""

import json

from nodectl.ledger.accept.course import told
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status


def _answer(stdout: str, outcome: Outcome = Outcome.RAN, status: int = 0) -> CommandResult:
    return CommandResult(
        "node01", ("dcgmi",), outcome, status, stdout, "", 0.0, "no answer" if outcome is not Outcome.RAN else ""
    )


def _report(*results: dict[str, str]) -> str:
    tests = [{"name": "Memory", "results": list(results)}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def test_a_gpu_that_fails_is_named_and_drained() -> None:
    report = _report({"gpu_ids": "0,1", "status": "Pass"}, {"gpu_ids": "3", "status": "Fail", "warnings": "ECC"})
    (finding,) = told("node01", _answer(report, status=226))
    assert (finding.status, finding.subject, finding.action) == (Status.FAILED, "GPU 3, Memory", "drain")


def test_no_report_and_no_answer_cannot_be_told() -> None:
    (unread,) = told("node01", _answer("Error: unable to establish a connection to the specified host\n", status=1))
    (silent,) = told("node01", _answer("", Outcome.TIMEOUT))
    assert unread.status is silent.status is Status.UNKNOWN
    assert "connection" in unread.actual
    assert silent.actual == "no answer"
