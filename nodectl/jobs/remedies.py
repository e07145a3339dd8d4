"""What to do about each class of a job's end, in words that can be typed if there is something to type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nodectl.checks.gpu.xid import meaning
from nodectl.common.documents import values_of
from nodectl.common.resources import table
from nodectl.model.finding import Finding, traces_first
from nodectl.model.job import Failure

_FILE = Path(__file__).with_suffix(".yml")
_XID = re.compile(r"\bXid \([^)]*\): (\d+)")


@dataclass(frozen=True, slots=True)
class Advice:
    """Say what to do about a message or evidence that matches `sign`; its groups are `{1}` and `{2}` of the remedy.

    `classes`: only failures of these; empty for all. `example`: a line that it is for. `of_nobody`: no rank is blamed.
    """

    example: str
    sign: str
    remedy: str
    classes: tuple[str, ...] = ()
    of_nobody: bool = False

    def find(self, failure: Failure, text: str) -> re.Match[str] | None:
        """Return the place in `text` that matches; None if this is advice about something else."""
        if (self.classes and failure.category not in self.classes) or (self.of_nobody and failure.rank is not None):
            return None
        return re.search(self.sign, text, re.MULTILINE)


@cache
def classes() -> Mapping[str, Mapping[str, str]]:
    """Return of each class what it `means` and its `remedy`, in the order of the documentation."""
    rows: Mapping[str, Mapping[str, str]] = table(_FILE)["classes"]
    return rows


@cache
def advice() -> tuple[Advice, ...]:
    """Return what goes before the class's own remedy: the first that fits."""
    return values_of(Advice, table(_FILE)["advice"])


def remedy_of(failure: Failure, job_id: str = "last") -> str:
    """Return what to do about a failure of this job; empty if there is nothing to say."""
    text = "\n".join((failure.message, *failure.evidence))
    of_class = classes().get(failure.category, {"remedy": ""})["remedy"].format(host=failure.host, job=job_id)
    if failure.category == "xid" and (xid := _XID.search(text)):
        xid_meaning = meaning(int(xid[1]))
        host, status, action = failure.host, xid_meaning.severity, xid_meaning.action
        told = traces_first(Finding(host, "xid", status, action=action, remedy=xid_meaning.remedy))
        return f"Xid {xid[1]}, {xid_meaning.title}: {told.remedy}"
    for row in advice():
        if match := row.find(failure, text):
            return row.remedy.format("", *match.groups(), host=failure.host, of_class=of_class)
    return of_class
