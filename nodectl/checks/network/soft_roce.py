"""Software RDMA devices that the inventory asks for, for tests without an adapter."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, judges
from nodectl.facts.soft_roce import SoftRoce
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 225

SOFT_ROCE = Check(
    "soft_roce",
    looks_at="/sys/class/infiniband, live on hosts with rdma_soft_roce",
    fires="an interface that should carry a software device does not",
    roles=("rdma",),
)


@judges(SOFT_ROCE, reads=("soft_roce",), variables=("rdma_soft_roce",))
def soft_roce(host: Subject) -> Iterator[Finding]:
    """One finding an interface of `rdma_soft_roce`."""
    found, wanted = host.facts.get("soft_roce"), host.variables.get("rdma_soft_roce")
    if not isinstance(wanted, list):
        return
    yield from host.unread(SOFT_ROCE, found, "software devices")
    if not isinstance(found, SoftRoce):
        return
    for name in map(str, wanted):
        device, expected = f"rxe_{name}", f"a software device on {name}"
        if device in found.devices:
            yield host.finding(SOFT_ROCE, Status.OK, device, expected=expected, actual="there")
        elif found.cannot:
            actual = f"{NOT_SETTABLE}: {found.cannot}"
            yield host.finding(SOFT_ROCE, Status.SKIPPED, device, expected=expected, actual=actual)
        else:
            remedy = f"systemctl status nodectl-rxe@{name}"
            yield host.finding(SOFT_ROCE, Status.FAILED, device, expected=expected, actual="not there", remedy=remedy)
