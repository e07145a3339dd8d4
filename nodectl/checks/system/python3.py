"""Whether the host has the Python that probes, jobs and Ansible's modules are run by."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.versions import Versions
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 25

PYTHON3 = Check(
    "python3",
    looks_at="python3 of the login's PATH",
    fires="not installed",
    expected="python3: probes, jobs and Ansible's modules are run by it",
    remedy="install it: `apt-get install python3` or `dnf install python3`",
)


@judges_fact(Versions, PYTHON3, reads=("versions",), unread="the system's Python")
def python3(host: Subject, versions: Versions) -> Iterator[Finding]:
    """The system's own, not that of an environment."""
    reason = versions.unavailable.get("python3", "")
    if not (versions.python3 or reason):
        return
    absent = reason.endswith("is not installed")
    status = Status.OK if versions.python3 else Status.FAILED if absent else Status.UNKNOWN
    yield host.finding(PYTHON3, status, actual=versions.python3 or reason)
