"""The rdma probe's options, and the command lines of perftest's programs for both ends."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import Choice, Text, Whole, names, option, size

NAME = "rdma"
LATENCY_BYTES = 2
# what `--operations` may name, each with its program
PROGRAMS = {
    "write": "ib_write_bw",
    "read": "ib_read_bw",
    "send": "ib_send_bw",
    "write_lat": "ib_write_lat",
    "read_lat": "ib_read_lat",
    "send_lat": "ib_send_lat",
}


def is_latency(operation: str) -> bool:
    """Return whether the operation measures latency, in microseconds."""
    return operation.endswith("_lat")


@dataclass(frozen=True, slots=True)
class End:
    """One end of a test: its port, its GID on Ethernet, and the GPU whose memory is used, if one is."""

    device: str
    port: int
    gid_index: int | None = None
    gpu: int | None = None
    dmabuf: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """How much: messages of this size, for whole seconds or so many."""

    message_bytes: int
    seconds: int | None = None
    iterations: int | None = None


def command(operation: str, end: End, size: Size) -> list[str]:
    """Return the program and its options for one end, without TCP port and server."""
    argv = [PROGRAMS[operation], "-d", end.device, "-i", str(end.port), "-s", str(size.message_bytes), "-F"]
    argv += ["-x", str(end.gid_index)] if end.gid_index is not None else []
    argv += ["-D", str(size.seconds)] if size.seconds is not None else ["-n", str(size.iterations)]
    argv += [] if is_latency(operation) else ["--report_gbits"]
    argv += [f"--use_cuda={end.gpu}"] if end.gpu is not None else []
    argv += ["--use_cuda_dmabuf"] if end.gpu is not None and end.dmabuf else []
    return argv


# the operations that are measured if none is asked for: between hosts, and on each host by itself
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
