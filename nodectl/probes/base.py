"""What every probe is given and gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodectl.common.units import MIB as MIB
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.transport.base import Transport


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The operator's wishes; None is the probe's own default."""

    duration_s: float | None = None
    repetitions: int | None = None
    sizes_bytes: tuple[int, ...] = (MIB, 64 * MIB)
    streams: int = 1
    pairs: str = "auto"
    rounds: int | None = None
    port: int | None = None
    interface: str | None = None
    scope: str = "all"
    collectives: tuple[str, ...] = ()
    # nccl: torch, nccl-tests or auto; sizes go on by this factor (0: two) up to the memory's limit
    engine: str = "auto"
    to_limit: bool = False
    grow: int = 0
    forks: int = 64
    # storage: the folder on the hosts
    path: str | None = None
    # training: about this much to send a step; fixes the size of the model
    gradient_bytes: int | None = None
    # rdma: what to measure, in which memory, on which devices or interfaces, and how much
    operations: tuple[str, ...] = ()
    memory: str = "host"
    device: tuple[str, ...] = ()
    gid_index: int | None = None
    message_bytes: int | None = None
    iterations: int | None = None
    # gemm: bf16, fp16, ...; empty is what the device is made for
    precisions: tuple[str, ...] = ()
    # a moment of the monotonic clock at which the probe is to be over, and what was given up for that
    ends_at: float | None = None
    trimmed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Measurements, and findings for what could not be measured or is wrong."""

    measurements: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: "ProbeResult") -> "ProbeResult":
        return ProbeResult(self.measurements + other.measurements, self.findings + other.findings)


# a line for the operator while it goes on
Note = Callable[[str], None]
Probe = Callable[[Transport, Sequence[Host], ProbeOptions, Note], ProbeResult]


def host_finding(probe: str, host: str, status: Status, actual: str, remedy: str = "") -> Finding:
    """A finding that blames one host."""
    return Finding(host, probe, status, actual=actual, remedy=remedy, kind="host", hosts=(host,))


def path_finding(probe: str, sender: str, receiver: str, actual: str, remedy: str = "") -> Finding:
    """A failed measurement between two hosts, either of which may be the culprit."""
    subject = f"{sender} -> {receiver}"
    return Finding(
        sender, probe, Status.FAILED, subject, actual=actual, remedy=remedy, kind="path", hosts=(sender, receiver)
    )


def spread(values: Sequence[float], median: float) -> float | None:
    """(max - min) / median; None for a single value, which shows none."""
    return (max(values) - min(values)) / median if len(values) > 1 and median else None
