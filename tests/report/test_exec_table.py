"""The table of `exec`: identical output once, the largest group first, one line a failure."""

from nodectl.model.result import CommandResult, Outcome
from nodectl.report.hosts import exec_table


def ran(host: str, stdout: str = "", stderr: str = "", status: int = 0, error: str = "") -> CommandResult:
    return CommandResult(host, ("x",), Outcome.RAN, status, stdout, stderr, 0.1, error)


def lost(host: str, outcome: Outcome, error: str, remedy: str) -> CommandResult:
    return CommandResult(host, ("x",), outcome, None, "", "", 0.1, error, remedy)


def test_groups() -> None:
    results = [ran("gpu07", "6.2\n"), *(ran(f"gpu0{number}", "6.1\n") for number in (1, 2, 3))]
    assert exec_table(results).splitlines() == ["--- gpu[01-03]  (3)", "6.1", "--- gpu07", "6.2"]


def test_status_and_streams_make_a_group() -> None:
    results = [ran("a1", "x"), ran("a2", "x", "x"), ran("a3", "x", status=2), ran("a4", "x")]
    assert exec_table(results).splitlines() == [
        "--- a[1,4]  (2)",
        "x",
        "--- a2",
        "x",
        "x",
        "--- a3  exit status 2",
        "x",
    ]


def test_hosts_that_fail_for_one_reason_share_a_line() -> None:
    results = [lost(f"b{number}", Outcome.UNREACHABLE, f"me@10.0.0.{number}:22: late", "") for number in (1, 2, 3)]
    assert exec_table(results) == "!!! b[1-3]  unreachable: late"
    assert exec_table(results[:1]) == "!!! b1  unreachable: me@10.0.0.1:22: late"


def test_failures_have_a_line_each_and_a_remedy_once() -> None:
    results = [
        lost("b2", Outcome.UNREACHABLE, "refused\nby it", "look"),
        ran("b1", "ok\n"),
        lost("b3", Outcome.TIMEOUT, "late", "wait"),
        lost("b4", Outcome.UNREACHABLE, "refused", "look"),
    ]
    assert exec_table(results).splitlines() == [
        "--- b1",
        "ok",
        "!!! b2  unreachable: refused by it",
        "!!! b3  timeout: late",
        "!!! b4  unreachable: refused",
        "  try (b[2,4]): look",
        "  try (b3): wait",
    ]
