"""The rdma probe's own options."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import Choice, Text, Whole, names, option, size
from nodectl.probes.rdma.argv import PROGRAMS

# the operations that are measured where none is asked for: between hosts, and on each host by itself
DEFAULT = ("write", "write_lat", "read", "send")
DEFAULT_ALONE = ("write", "write_lat")
SCOPES = ("pairs", "node")


@dataclass(frozen=True, slots=True)
class RdmaOptions(ProbeOptions):
    """Hold what is measured, in which memory, on which devices or interfaces, and how much."""

    operations: tuple[str, ...] = option(
        (),
        Text("NAME[,NAME…]", names),
        f"{', '.join(PROGRAMS)}.",
        shown=f"{','.join(DEFAULT)}; of a node {','.join(DEFAULT_ALONE)}",
    )
    scope: str = option(
        "pairs", Choice(SCOPES), "Pairs of hosts, or each host by itself: each NIC with the next one, or with itself."
    )
    memory: str = option("host", Choice(("host", "gpu")), "Where messages lie.")
    device: tuple[str, ...] = option((), Text("NAME[,NAME…]", names), "RDMA devices, or their interfaces.", shown="all")
    gid_index: int | None = option(None, Whole(0, 255), "Of RoCE.", shown="version 2 with IPv4")
    message_bytes: int | None = option(
        None, Text("SIZE", size), "Of a message.", flag="message-size", shown="1MiB, for latency 2 bytes"
    )
    iterations: int | None = option(None, Whole(5, 10_000_000), "Messages of a run, instead of a time.")

    @property
    def by_itself(self) -> bool:
        """Return whether each host is measured without the others."""
        return self.scope == "node"
