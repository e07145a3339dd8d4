"""A mistake in one check, or in the reading of one fact, is told as what it is, and ends no other look."""

import re
from collections.abc import Iterator

from nodectl.checks.check import Check, Judgement, Subject
from nodectl.checks.judge import judge
from nodectl.facts.base import Fact, read_fact
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.recording import Recording
from nodectl.model.status import Status

FIRST = Check("first", fires="b")
SECOND = Check("second", fires="b")


def _fails_half_way(host: Subject) -> Iterator[Finding]:
    yield host.finding(FIRST, Status.OK, actual="looked")
    raise KeyError("x")


def _works(host: Subject) -> Iterator[Finding]:
    yield host.finding(SECOND, Status.OK, actual="looked")


def test_a_check_that_fails_is_unknown_and_the_next_one_is_judged() -> None:
    wrong = Judgement((FIRST,), ("cpu",), _fails_half_way)
    right = Judgement((SECOND,), ("cpu",), _works)
    looked, failed, other = judge(Subject("a", {}, None), (wrong, right))
    assert (looked.status, failed.status, other.status) == (Status.OK, Status.UNKNOWN, Status.OK)
    assert failed.host == "a" and failed.check == "first"
    assert re.search(r"KeyError: 'x' \(line \d+ of test_check_mistakes.py\)", failed.actual)
    assert "a mistake in" in failed.remedy and "test_check_mistakes" in failed.remedy


def _nested(recording: Recording) -> int:
    return _nested(recording)


def test_a_fact_that_cannot_be_read_in_any_way_is_unread() -> None:
    value = read_fact(Fact("odd", (), _nested, str), Recording("a", {}))
    assert isinstance(value, Unread) and value.kind == "unknown" and "recursion" in value.reason
