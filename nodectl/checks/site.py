"""The site's own checks: what they answer, as JSON or by the convention of Nagios, as findings like all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nodectl.checks.check import Action, Check, Subject, judges
from nodectl.common import bounded_json
from nodectl.facts.look import Site, SiteRun
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

# where `health` says which of them were asked, among the host's variables
ASKED = "site_checks"
_MOST = 100
# what was meant to be a document, and stands behind other words
_STRAY = re.compile(r'"status"\s*:')
# a text of Nagios may begin with [OK]
_JSON = re.compile(r"\s*(?:\{|\[\s*[{\]])")
_NAGIOS = (Status.OK, Status.WARNING, Status.FAILED, Status.UNKNOWN)
_CORRECT = "correct the check; docs/health.md says how it answers"
_LOOK = "run it there by hand"

SITE_CHECKS = Check(
    "site",
    fires="as each of the site's own checks (`checks.d/`) says, each under an id of its own, `site_…`; "
    "unknown: no answer in time, or none that can be read",
)
# half of a character, as only JSON can write it, is none that can be printed
_PRINTABLE = AfterValidator(lambda text: text.encode("utf-8", errors="replace").decode())
Text = Annotated[str, _PRINTABLE]
Value = Annotated[str, Field(coerce_numbers_to_str=True), _PRINTABLE]


class Answer(BaseModel):
    """One thing that a check says."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    status: Status
    subject: Text = ""
    expected: Value = ""
    actual: Value = ""
    remedy: Text = ""
    action: Action = "none"
    evidence: Text = ""


_ANSWERS = TypeAdapter(Annotated[tuple[Answer, ...], Field(min_length=1, max_length=_MOST)])


@judges(SITE_CHECKS, reads=("site",))
def site_checks(host: Subject) -> Iterator[Finding]:
    """Each of them; one that was asked and is not in the recording is unknown."""
    site = host.fact("site", Site)
    runs: Mapping[str, SiteRun] = site.runs if site else {}
    for name in dict.fromkeys((*(host.variables.get(ASKED) or ()), *runs)):
        check = Check(name, fires=SITE_CHECKS.fires)
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
        yield host.finding(check, **dict(answer))


def read_answers(text: str, exit_status: int, complaint: str = "") -> tuple[Answer, ...]:
    """Return what a check that ended with 0 to 3 says; ValueError with the place and what is wrong there."""
    if not _JSON.match(text):
        if _STRAY.search(text):
            raise ValueError("its JSON does not stand alone on standard output")
        line, _, measured = next((line for line in text.splitlines() if line.strip()), "").partition("|")
        actual = line.strip() or complaint or f"exit status {exit_status}, and no word"
        return (Answer(status=_NAGIOS[exit_status], actual=actual, evidence=measured.strip()),)
    document = bounded_json.loads(text)
    try:
        answers = _ANSWERS.validate_python(document if isinstance(document, list) else [document])
    except ValidationError as error:
        item = error.errors()[0]
        number, *path = item["loc"] or (0,)
        raise ValueError(f"answer {int(number) + 1}: {'.'.join(map(str, path))}: {item['msg']}") from error
    status = worst(answer.status for answer in answers)
    # what printed its answer and failed then has not said all
    if exit_status not in (0, *(code for code, named in enumerate(_NAGIOS) if named is status)):
        raise ValueError(f"it says {status}, and ends with exit status {exit_status}")
    return answers
