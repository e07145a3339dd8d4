"""What a host is for a job that is to start there: names, addresses, ports, programs, folders; only preflight asks.

All of it comes from one program on the node (`look` of payload/jobs/preflight), as it depends on what the job needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from nodectl.common import bounded_json
from nodectl.common.documents import values_of
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, parsed
from nodectl.model.recording import Command, Recording

KEY = "job-look"
# names that nobody answers for take 5 s, a driver that hangs 20
_DEADLINE_S = 40
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Names:
    """The host's name, and what it means there: addresses, empty for nothing, None if no answer came in time."""

    hostname: str
    own: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class JobAddress:
    """The address, network in CIDR form and interface that a job would use, and all interfaces that others reach."""

    address: str
    network: str
    interface: str
    mtu: int
    link_up: bool
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FreePorts:
    """Free ones of the asked ports; first and last port that the kernel gives to outgoing connections."""

    free: tuple[int, ...]
    ephemeral: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Launcher:
    """The launch script; an empty `sha256` if there is none."""

    sha256: str
    executable: bool


@dataclass(frozen=True, slots=True)
class JobVenv:
    """Versions in the launcher's environment, empty if there is none; `engine` is that of --engine.

    The engine is only looked for if it is asked for. `cuda` is what torch is built for, `none` where it is built
    without.
    """

    python: str
    torch: str
    nccl: str
    engine: str = ""
    cuda: str = ""


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs that the driver lists; None if it is there and does not answer."""

    count: int | None


@dataclass(frozen=True, slots=True)
class GpuUsers:
    """Programs that compute on the GPUs: `pid 4242 (python, alice), 20480 MiB`."""

    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """Hold whether a folder can be written: `error` is empty, or why not; `free_mib` None if it cannot be told."""

    path: str
    error: str
    free_mib: int | None


@dataclass(frozen=True, slots=True)
class NeededPaths:
    """Reasons by path why it cannot be read there; empty if it can."""

    errors: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Containers:
    """Names of the asked image by installed engine, empty if the engine has none; only asked-for engines."""

    images: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Size of /dev/shm, None if there is none."""

    size_mib: int | None


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """Jobs of nodectl whose supervisor lives on the host, of any login."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RdmaDevices:
    """Names of the RDMA devices, as below /sys/class/infiniband."""

    names: tuple[str, ...]


KINDS: Mapping[str, type[Any]] = {
    "names": Names,
    "job_address": JobAddress,
    "free_ports": FreePorts,
    "launcher": Launcher,
    "job_venv": JobVenv,
    "containers": Containers,
    "gpu_count": GpuCount,
    "gpu_users": GpuUsers,
    "state_folder": Folder,
    "checkpoint_folder": Folder,
    "needed_paths": NeededPaths,
    "shared_memory": SharedMemory,
    "running_jobs": RunningJobs,
    "rdma_devices": RdmaDevices,
}


def job_facts(argv: Sequence[str]) -> tuple[Fact[Any], ...]:
    """Return the facts that `argv`, run on the host, answers together."""
    command = Command(KEY, tuple(argv), deadline_s=_DEADLINE_S)
    return tuple(Fact(name, (command,), partial(_read, name, kind), str) for name, kind in KINDS.items())


def _read(subject: str, kind: type[Kind], recording: Recording) -> Kind:
    answer = parsed(recording, KEY, _answer, in_part=True).get(subject)
    try:
        (value,) = values_of(kind, [answer])
    except ValueError as error:
        raise ParseError(f"{KEY}: {subject} is {str(answer)[:200]!r}: {error}") from error
    return value


def _answer(text: str) -> dict[str, Any]:
    answer = bounded_json.document(KEY, text)
    if not isinstance(answer, dict):
        raise ParseError(f"{KEY}: {text[:200]!r} is no answer")
    return answer
