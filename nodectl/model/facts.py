"""What a host is, one frozen type a subject; None where the host does not give a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nodectl.model.gpus import Gpu as Gpu
from nodectl.model.gpus import Gpus as Gpus
from nodectl.model.network import Nic as Nic


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
    vendor: str | None = None
    threads_per_core: int | None = None
    mhz_max: float | None = None
    online: str | None = None
    hypervisor: str | None = None


@dataclass(frozen=True, slots=True)
class NumaNode:
    """`distances` are to all nodes, in their order; `cpus` as the kernel writes lists: 0-7,64-71."""

    node: int
    cpus: str
    memory_mib: int | None
    free_mib: int | None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Numa:
    """The host's NUMA nodes."""

    nodes: tuple[NumaNode, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """`shm_mib` is the size of /dev/shm, None where there is none."""

    total_mib: int
    available_mib: int | None
    swap_mib: int | None
    shm_mib: int | None
    swap_free_mib: int | None = None
    shm_free_mib: int | None = None
    huge_pages_mib: int | None = None

    @property
    def installed_gib(self) -> int:
        """What the modules hold: the firmware and the kernel keep a little, and modules come in steps of 16 GiB."""
        return -(-self.total_mib // (16 * 1024)) * 16


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

    `torch`, `cuda`, `cudnn` and `nccl` are those of the launcher's `venv`, read from its files; `nccl_loaded` is what
    the library there answers when it is loaded. `driver` is the loaded module, `driver_installed` the one on disk,
    `driver_library` the one that programs talk through; `driver_cuda` is the newest CUDA that the driver takes.
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
    cudnn: str | None = None
    nccl_loaded: str | None = None
    deepspeed: str | None = None
    driver_installed: str | None = None
    driver_library: str | None = None
    driver_flavour: str | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Space for everybody (`root`) and where nodectl keeps its state on the host.

    Percentages of inodes in use; None where the file system has no fixed number of them.
    """

    root_size_mib: int
    root_free_mib: int
    state_folder: str
    state_free_mib: int
    root_inodes_used_percent: int | None = None
    state_inodes_used_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """Host's clock minus ours; the true offset is within `error_s` above `offset_s`."""

    offset_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class Lab:
    """A host of a lab: what it shares with the machine, so that no value of those is taken for its own.

    `recorded` names the recording that answers for its hardware; empty where it is not dressed in one.
    """

    lab: str
    shared: tuple[str, ...]
    recorded: str = ""
