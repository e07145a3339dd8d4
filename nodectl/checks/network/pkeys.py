"""Each InfiniBand port is a full member of the partition that programs take."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.common.counting import counted
from nodectl.facts.rdma import Pkeys
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 152

IB_PKEY = Check(
    "ib_pkey",
    fires="a port is a limited member of its first partition: two such ports cannot talk",
    expected="full membership in the first partition (0x8000 or more)",
    remedy="correct the subnet manager's partitions.conf (`=full`), then let it sweep again",
)


@judges_fact(Pkeys, IB_PKEY, reads=("pkeys",), unread="the partitions of the ports", borrowed="sys")
def pkeys(host: Subject, pkeys: Pkeys) -> Iterator[Finding]:
    """NCCL takes index 0 of the table unless NCCL_IB_PKEY says otherwise."""
    faults = (
        host.finding(IB_PKEY, Status.FAILED, port, actual=", ".join(keys))
        for port, keys in pkeys.ports.items()
        if pkeys.limited(port)
    )
    yield from host.all_of(
        IB_PKEY, faults, actual=counted(len(pkeys.ports), "port is a full member", "ports are full members")
    )
