"""The site's own checks: what they answer, as JSON or by the convention of Nagios, as findings like all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.checks.check import ACTIONS, Check, Subject, judges
from nodectl.common import bounded_json
from nodectl.common.few import clipped, few
from nodectl.facts.look import Site, SiteRun
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

# where `health` says which of them were asked, among the host's variables
ASKED = "site_checks"
_MOST = 100
_SHOWN = 80
# what was meant to be a document, and stands behind other words
_STRAY = re.compile(r'"status"\s*:')
# a text of Nagios may begin with [OK]
_JSON = re.compile(r"\s*(?:\{|\[\s*[{\]])")
_NAGIOS = (Status.OK, Status.WARNING, Status.FAILED, Status.UNKNOWN)
_TEXTS = ("subject", "remedy", "evidence")
_VALUES = ("expected", "actual")
_KEYS = ("status", *_TEXTS, *_VALUES, "action")
_CORRECT = "correct the check; docs/health.md says how it answers"
_LOOK = "run it there by hand"

SITE_CHECKS = Check(
    "site",
    looks_at="what the site's own checks answer (`checks.d/`), each under an id of its own, `site_…`",
    fires="as each of them says; unknown: no answer in time, or none that can be read",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that a check says."""

    status: Status
    subject: str = ""
    expected: str = ""
    actual: str = ""
    remedy: str = ""
    action: str = ""
    evidence: str = ""


@judges(SITE_CHECKS, reads=("site",))
def site_checks(host: Subject) -> Iterator[Finding]:
    """Each of them; one that was asked and is not in the recording is unknown."""
    site = host.fact("site", Site)
    runs: Mapping[str, SiteRun] = site.runs if site else {}
    for name in dict.fromkeys((*(host.variables.get(ASKED) or ()), *runs)):
        check = Check(name, looks_at=SITE_CHECKS.looks_at, fires=SITE_CHECKS.fires)
        if name in runs:
            yield from _findings(host, check, runs[name])
        else:
            yield host.finding(check, Status.UNKNOWN, actual="it is not in the recording", remedy="record again")


def _findings(host: Subject, check: Check, run: SiteRun) -> Iterator[Finding]:
    if run.why:
        evidence = "" if run.complaint in run.why else run.complaint
        yield host.finding(check, Status.UNKNOWN, actual=run.why, remedy=_LOOK, evidence=evidence)
        return
    try:
        answers = read_answers(run.text, run.exit_status, run.complaint)
    except ValueError as error:
        actual = f"its answer cannot be read: {error}"
        yield host.finding(check, Status.UNKNOWN, actual=actual, remedy=_CORRECT, evidence=run.complaint)
        return
    for answer in answers:
        yield host.finding(
            check,
            answer.status,
            answer.subject,
            expected=answer.expected,
            actual=answer.actual,
            remedy=answer.remedy,
            action=answer.action,
            evidence=answer.evidence,
        )


def read_answers(text: str, exit_status: int, complaint: str = "") -> tuple[Answer, ...]:
    """Return what a check that ended with 0 to 3 says; ValueError with the place and what is wrong there."""
    if not _JSON.match(text):
        if _STRAY.search(text):
            raise ValueError("its JSON does not stand alone on standard output")
        return (_by_nagios(text, exit_status, complaint),)
    answers = _of_document(bounded_json.loads(text))
    status = worst(answer.status for answer in answers)
    # what printed its answer and failed then has not said all
    if exit_status not in (0, *(code for code, named in enumerate(_NAGIOS) if named is status)):
        raise ValueError(f"it says {status}, and ends with exit status {exit_status}")
    return answers


def _by_nagios(text: str, exit_status: int, complaint: str) -> Answer:
    line, _, measured = next((line for line in text.splitlines() if line.strip()), "").partition("|")
    actual = line.strip() or complaint or f"exit status {exit_status}, and no word"
    return Answer(_NAGIOS[exit_status], actual=actual, evidence=measured.strip())


def _of_document(document: Any) -> tuple[Answer, ...]:
    if isinstance(document, dict):
        return (_answer(document, ""),)
    if not document:
        raise ValueError("an empty list says nothing")
    if len(document) > _MOST:
        raise ValueError(f"{len(document)} answers; {_MOST} are read")
    return tuple(_answer(answer, f"answer {number}: ") for number, answer in enumerate(document, start=1))


def _answer(given: Any, where: str) -> Answer:
    if not isinstance(given, dict):
        raise ValueError(f"{where}{_shown(given)} is no object")
    if unknown := [clipped(str(key), _SHOWN) for key in given if key not in _KEYS]:
        raise ValueError(f"{where}unknown key {few(unknown)}; there are {', '.join(_KEYS)}")
    status = _one_of(given.get("status"), [member.value for member in Status], f"{where}status")
    action = _one_of(given.get("action", ACTIONS[0]), ACTIONS, f"{where}action")
    texts = {key: _text(given[key], f"{where}{key}") for key in (*_TEXTS, *_VALUES) if key in given}
    return Answer(Status(status), action=action, **texts)


def _one_of(given: object, choices: Any, where: str) -> str:
    if given is None:
        raise ValueError(f"{where} is missing")
    if not isinstance(given, str) or given not in choices:
        raise ValueError(f"{where}: {_shown(given)} is none of {', '.join(choices)}")
    return given


def _text(given: object, where: str) -> str:
    is_number = where.endswith(_VALUES) and isinstance(given, int | float) and not isinstance(given, bool)
    if not isinstance(given, str) and not is_number:
        raise ValueError(f"{where}: {_shown(given)} is no text")
    # half of a character, as only JSON can write it, is none that can be printed
    return str(given).encode("utf-8", errors="replace").decode()


def _shown(given: object) -> str:
    return clipped(repr(given), _SHOWN)
