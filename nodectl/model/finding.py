"""A judgement on one host: what was expected, what is, and what to do."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from nodectl.model.status import Status

# a remedy that begins so is of a finding whose action ends the traces of the fault
_SAVE = "save its traces for the vendor first"
_ENDS_TRACES, _OF_DRIVER = ("reset GPU", "reboot", "replace"), ("xid", "sxid")
_SAID = re.compile(r"\b(?:reset|reboot|replace|reseat)|nvidia-smi -r\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a verdict; `action` is one of none, restart job, reset GPU, reboot, drain, replace.

    A probe's finding also says what it blames: `kind` is host, path or direction, `hosts` are the ends of a path.
    """

    host: str
    check: str
    status: Status
    subject: str = ""
    action: str = "none"
    expected: str = ""
    actual: str = ""
    remedy: str = ""
    evidence: str = ""
    kind: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def ends_traces(self) -> bool:
        """Return whether its action ends the traces of a fault that a vendor asks for."""
        return _SAVE in self.remedy

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle, which would look up the fields of each: of a large fleet a hundred thousand cross processes."""
        return Finding, _values(self)


def traces_first(finding: Finding) -> Finding:
    """Return it; where what is to be done ends the traces of a fault, the remedy begins with keeping them."""
    said = (finding.action == "drain" or finding.check in _OF_DRIVER) and _SAID.search(finding.remedy)
    wrong = finding.status in (Status.FAILED, Status.WARNING) and not finding.ends_traces
    if not wrong or not (said or finding.action in _ENDS_TRACES):
        return finding
    keep = f"{_SAVE} (`nodectl record traces -l {shlex.quote(finding.host)}`; of a GPU also nvidia-bug-report.sh)"
    return replace(finding, remedy=f"{keep}; then {finding.remedy}" if finding.remedy else keep)


_values: Callable[[Finding], tuple[object, ...]] = attrgetter(*(field.name for field in fields(Finding)))
