"""What a host is, one frozen type a subject; None where the host does not give a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Unread:
    """A subject without values: `absent` (the tool or device is not there) or `unknown` (it could not be read)."""

    kind: Literal["absent", "unknown"]
    reason: str


@dataclass(frozen=True, slots=True)
class Cpu:
    """Cores and threads are of the whole host."""

    model: str | None
    architecture: str | None
    sockets: int | None
    cores: int | None
    threads: int
    numa_nodes: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """`shm_mib` is the size of /dev/shm, None where there is none."""

    total_mib: int
    available_mib: int | None
    swap_mib: int | None
    shm_mib: int | None


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface; `addresses` are `address/prefix`; speed and driver None where the kernel names none."""

    name: str
    state: str
    mtu: int
    mac: str | None
    addresses: tuple[str, ...]
    speed_mbit: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel and the distribution above it."""

    name: str
    release: str
    architecture: str
    os_id: str | None
    os_version: str | None
    os_name: str | None


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as a job would load them; why one is None stands in `unavailable`.

    `torch`, `cuda` and `nccl` are those of the launcher's `venv`, read from its files; `driver_cuda` is the newest
    CUDA that the loaded driver takes.
    """

    venv: str
    python3: str | None = None
    venv_python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    iperf3: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; a value that the driver refuses is None, its text in `unavailable`."""

    index: int | None
    name: str | None
    uuid: str | None
    bus_id: str | None
    memory_total_mib: int | None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that the driver shows; `lost` are those that it names but cannot reach."""

    count: int
    devices: tuple[Gpu, ...]
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """Space for everybody (`root`) and where nodectl keeps its state on the host."""

    root_size_mib: int
    root_free_mib: int
    state_folder: str
    state_free_mib: int


@dataclass(frozen=True, slots=True)
class Clock:
    """Host's clock minus ours; the true offset is within `error_s` above `offset_s`."""

    offset_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class Lab:
    """A host of a lab: what it shares with the machine, so that no value of those is taken for its own."""

    lab: str
    shared: tuple[str, ...]
