"""What the verify tasks of a run found, as findings; a task that looked again speaks last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.provision.events import Answer

_TEXTS = ("check", "subject", "action", "expected", "actual", "remedy", "evidence")


def findings_of(answers: Iterable[Answer]) -> tuple[Finding, ...]:
    """The findings of all hosts, in the order in which they were made."""
    last: dict[tuple[str, str, str], list[Finding]] = {}
    for answer in answers:
        given: dict[tuple[str, str, str], list[Finding]] = {}
        for raw in _dicts(answer.result.get("findings")):
            found = _finding(answer.host, raw)
            given.setdefault((found.host, found.check, found.subject), []).append(found)
        last.update(given)
    return tuple(finding for findings in last.values() for finding in findings)


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _finding(host: str, raw: Mapping[str, Any]) -> Finding:
    try:
        status = Status(str(raw.get("status")))
    except ValueError:  # what a node says is not ours to trust: not told is unknown
        status = Status.UNKNOWN
    check, subject, action, expected, actual, remedy, evidence = (str(raw.get(name, "")) for name in _TEXTS)
    return Finding(host, check, status, subject, action, expected, actual, remedy, evidence)
