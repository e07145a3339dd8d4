"""What a machine of a bundled recording is made of, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DRIVER, DRIVER_CUDA = "580.95.05", "13.0"
HOST, STACK, TUNING = "node01", "cu128", "stock"


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What all GPUs of a machine have in common, as nvidia-smi and lspci print it."""

    name: str
    pci_name: str
    brand: str
    architecture: str
    device_id: str
    subsystem_id: str
    vbios: str
    board_part: str
    gpu_part: str
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    pcie_gen: int
    idle_gen: int
    idle_state: str
    sm_mhz: int
    sm_max_mhz: int
    memory_mhz: int
    memory_max_mhz: int
    power_limit_w: int
    idle_w: float
    banks: int
    nvlinks: int = 0
    nvlink_gb_s: str = ""
    data_centre: bool = True


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `bus` is the bus number, the device is always 00.0."""

    index: int
    bus: int
    numa: int
    uuid: str
    serial: str

    @property
    def address(self) -> str:
        return f"{self.bus:02x}:00.0"


@dataclass(frozen=True, slots=True)
class Adapter:
    """One port of a network adapter; `device` is its RDMA name, empty for a plain NIC."""

    netdev: str
    bus: int
    function: int
    numa: int
    kind: str
    rate_gbit: int
    mac: str
    device: str = ""
    guid: str = ""
    lid: int = 0
    address: str = ""

    @property
    def pci(self) -> str:
        return f"{self.bus:02x}:00.{self.function}"


@dataclass(frozen=True, slots=True)
class AdapterModel:
    """What the RDMA adapters have in common."""

    pci_name: str
    ca_type: str
    part_id: int
    board_id: str
    firmware: str
    pcie_gen: int


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processors; CPUs of a NUMA node are contiguous, their second threads follow after all cores."""

    model: str
    vendor: str
    family: int
    number: int
    stepping: int
    sockets: int
    cores_a_socket: int
    numa_nodes: int
    mhz: int
    min_mhz: int

    @property
    def cores(self) -> int:
        return self.sockets * self.cores_a_socket

    def cpus_of(self, node: int) -> str:
        """`16-31,144-159`."""
        size = self.cores // self.numa_nodes
        if self.numa_nodes == 1:
            return f"0-{2 * size - 1}"
        first = node * size
        return f"{first}-{first + size - 1},{self.cores + first}-{self.cores + first + size - 1}"


@dataclass(frozen=True, slots=True)
class Machine:
    """All of one host; `switches` maps a root port to the buses behind it, `flat` puts them one bridge apart."""

    name: str
    description: str
    hardware: str
    gpu: GpuModel
    gpus: tuple[Gpu, ...]
    adapters: tuple[Adapter, ...]
    management: Adapter
    cpu: Cpu
    memory_gib: int
    dimm_gib: int
    root_ports: Mapping[str, tuple[int, ...]]
    flat: bool
    fabric: AdapterModel | None = None
    nvswitches: tuple[int, ...] = ()
    nvswitch_id: str = ""
    mtu: Mapping[str, int] = field(default_factory=dict)

    @property
    def adapter(self) -> AdapterModel:
        """The model of its RDMA adapters; an error where it has none."""
        if self.fabric is None:
            raise ValueError(f"{self.name} has no RDMA adapters")
        return self.fabric

    @property
    def rdma(self) -> tuple[Adapter, ...]:
        """The adapters with an RDMA device, in the order of their names."""
        return tuple(sorted((each for each in self.adapters if each.device), key=lambda each: int(each.device[5:])))

    def numa_of(self, bus: int) -> int:
        """The NUMA node of what sits on this bus."""
        places = {gpu.bus: gpu.numa for gpu in self.gpus}
        places |= {each.bus: each.numa for each in (*self.adapters, self.management)}
        return places.get(bus, self.gpus[-1].numa)

    def root_of(self, bus: int) -> str:
        """The root port that leads to this bus."""
        return next(port for port, buses in self.root_ports.items() if bus in buses)
