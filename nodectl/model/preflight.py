"""What is asked of hosts before a job, and what each of them answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.common import node_paths


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """What the job will need; `venv` None means that the launcher brings its own Python.

    `code_bytes` is what will be copied to each host; `min_free_mib` must be left over after that.
    """

    candidate_ports: tuple[int, ...]
    interface: str | None = None
    checkpoint_dir: str | None = None
    launcher: str = node_paths.LAUNCHER
    venv: str | None = node_paths.VENV
    min_free_mib: int = 256
    code_bytes: int = 0
    ports_needed: int = 2


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One host's answer. Empty text: there is none; None: could not be told (for `memlock_kib`: no limit).

    `own_addresses` and the values of `peers` are what names mean on that host, `network` is CIDR,
    `clock_offset_s` is that host's clock minus the operator's.
    """

    host: str
    hostname: str
    address: str
    interface: str
    own_addresses: tuple[str, ...] | None
    peers: Mapping[str, tuple[str, ...] | None] = field(hash=False)
    network: str
    mtu: int
    link_up: bool
    interfaces: tuple[str, ...]
    free_ports: tuple[int, ...]
    ephemeral_ports: tuple[int, ...] | None
    python: str
    launcher_sha256: str
    launcher_runs: bool
    venv_python: str
    torch: str
    nccl: str
    cpu_count: int
    gpu_count: int | None
    state_dir: str
    state_error: str
    state_free_mib: int | None
    checkpoint_error: str
    checkpoint_free_mib: int | None
    running_jobs: tuple[str, ...]
    shm_mib: int | None
    memlock_kib: int | None
    rdma_devices: tuple[str, ...]
    clock_offset_s: float | None
