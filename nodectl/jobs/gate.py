"""Which hosts a launch can do without: those that preflight found fault with, by `--gate`."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.checks.launch.candidate import WAY_TO_FIRST
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status

_BAD = (Status.FAILED, Status.UNKNOWN)


def passing(hosts: Sequence[Host], findings: Sequence[Finding]) -> list[Host]:
    """The hosts without a fault.

    Where more than half of the others find no way to the first host, it is the one at fault.
    """
    bad = [finding for finding in findings if finding.status in _BAD]
    ways = {finding.host for finding in bad if finding.check == WAY_TO_FIRST.id}
    faulty = {finding.host for finding in bad if finding.check != WAY_TO_FIRST.id}
    faulty |= {hosts[0].name} if 2 * len(ways) > len(hosts) - 1 else ways
    return [host for host in hosts if host.name not in faulty]
