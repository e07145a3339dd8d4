"""What a host's kernel and services are doing, one frozen type a subject; None where the host gives no value."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Boot:
    """The running boot: what was seen in another one is past."""

    boot_id: str
    uptime_s: float


@dataclass(frozen=True, slots=True)
class Modules:
    """Names of the kernel's loaded modules, as /proc/modules writes them (with underscores)."""

    loaded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelKnobs:
    """Settings of the kernel that are no sysctl; `governors` counts the CPUs of each frequency governor."""

    cmdline: str | None = None
    transparent_hugepage: str | None = None
    transparent_hugepage_defrag: str | None = None
    governors: Mapping[str, int] = field(default_factory=dict)
    frequency_driver: str | None = None
    numa_balancing: int | None = None
    smt: str | None = None
    idle_driver: str | None = None
    clocksource: str | None = None
    iommu_groups: int | None = None
    taint: int | None = None
    tuned_profile: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryController:
    """Errors that a memory controller counted since boot: corrected and uncorrected."""

    name: str
    corrected: int
    uncorrected: int
    kind: str | None = None
    size_mib: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """EDAC's controllers; none where the kernel has no driver for them."""

    controllers: tuple[MemoryController, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit: load, active, sub and enabled state, and how it last ended."""

    name: str
    load: str
    active: str
    sub: str
    enabled: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Units:
    """The units that training depends on, and all that failed; `system` is systemd's word on the whole."""

    system: str
    units: Mapping[str, Unit]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """What systemd gives a unit by default, in bytes and files or `infinity`; `remove_ipc` is logind's."""

    memlock: str | None = None
    nofile: str | None = None
    stack: str | None = None
    nproc: str | None = None
    tasks_max: str | None = None
    remove_ipc: bool | None = None


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """What Slurm's controller says of this node; `states` are its state's parts, without marks such as `*`."""

    name: str
    states: tuple[str, ...]
    responding: bool
    reason: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gres: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process that waits for a device or a file system that does not answer."""

    pid: int
    name: str
    waits_in: str | None = None


@dataclass(frozen=True, slots=True)
class Processes:
    """Load, and processes in states that only trouble keeps them in."""

    load_1: float
    load_5: float
    load_15: float
    uninterruptible: tuple[Process, ...]
    zombies: int
    count: int


@dataclass(frozen=True, slots=True)
class Listening:
    """TCP ports on which something listens, each with the addresses that it took."""

    ports: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    target: str
    source: str
    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mounts:
    """All mounted file systems, the last one of a target being the one in use."""

    mounts: tuple[Mount, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the dynamic linker would load, with the version that its file's name carries."""

    name: str
    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Libraries:
    """NVIDIA's libraries of the system, as `ldconfig -p` lists them."""

    libraries: tuple[Library, ...]
