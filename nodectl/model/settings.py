"""What provisioning sets on a host, as the live host holds it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One kernel setting; `value` None where this kernel view has none, `fixed` says why it cannot be set here."""

    key: str
    value: str | None
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What a session gets, the lower of soft and hard: numbers in limits.conf's units, or unlimited.

    `raisable` is false where not even root here may raise a limit, as in a container.
    """

    memlock: str
    nofile: str
    stack: str
    raisable: bool = True


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """NCCL's files; None where there is none. The user's goes before the system's."""

    system: str | None
    user: str | None


@dataclass(frozen=True, slots=True)
class ClockSync:
    """Whether something keeps the clock right, in the words of the program that was asked."""

    synchronised: bool
    told: str


@dataclass(frozen=True, slots=True)
class Bridges:
    """PCIe bridges with access control, and those where it redirects; `virtual`: its host relies on it."""

    known: int
    redirecting: tuple[str, ...]
    virtual: bool
