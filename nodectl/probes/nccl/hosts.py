"""The hosts that can take part in a collective: where each is reached, and what it has to measure with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.common.node_paths import NCCL_TESTS
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.endpoints import Endpoint, Look, ask_all, find_endpoints
from nodectl.probes.events import Event
from nodectl.transport.base import Transport

NAME = "nccl"
_DEADLINE_S = 60.0
_PROVISION = "run `nodectl provision` for it, or name its environment with the variable pytorch_venv"


@dataclass(frozen=True, slots=True)
class Ready:
    """A host that takes part; `speed_mbit` is of its interface, where that is a real device."""

    endpoint: Endpoint
    machine: str
    numa_nodes: int = 1
    bus_ids: tuple[str, ...] = ()
    speed_mbit: int | None = None
    programs: str = ""
    with_mpi: bool = False
    mpirun: str | None = None

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.endpoint.host.name

    @property
    def host(self) -> Host:
        """The host of the inventory."""
        return self.endpoint.host


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hold who takes part, by which engine and backend, and why others do not."""

    ready: tuple[Ready, ...]
    engine: str
    backend: str
    findings: tuple[Finding, ...]


def find_fleet(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, engine: str) -> Fleet:
    """Ask all hosts; one engine for all, as figures of two say nothing of each other."""
    endpoints, findings = find_endpoints(transport, hosts, NAME, options)
    by_host = {endpoint.host: endpoint for endpoint in endpoints}
    look = Look("probes.nccl.probe", lambda host: _look_args(by_host[host]), "look", _DEADLINE_S)
    able, silent = ask_all(
        transport, list(by_host), NAME, look, lambda host, answer: _ready(by_host[host], answer), options.forks
    )
    engine = _engine(able, engine)
    has_engine = {host.name: bool(host.endpoint.torch if engine == "torch" else host.programs) for host in able}
    ready = [host for host in able if has_engine[host.name]]
    lacking = [_without(host, engine) for host in able if not has_engine[host.name]]
    backend = "nccl" if engine != "torch" or all(map(_uses_gpus, ready)) else "gloo"
    if backend == "gloo":
        lacking += _without_gpus(ready)
    return Fleet(tuple(ready), engine, backend, (*findings, *silent, *lacking))


def _look_args(endpoint: Endpoint) -> list[str]:
    # where the role nccl_tests builds them; the host variable of this name says otherwise
    folder = endpoint.host.variables.get("nccl_tests_folder")
    known = folder if isinstance(folder, str) and "{{" not in folder else NCCL_TESTS
    return ["look", f"--folder={known}", f"--interface={endpoint.interface}"]


def _ready(endpoint: Endpoint, answer: Event) -> Ready:
    return Ready(
        endpoint,
        machine=str(answer["machine"]) or endpoint.host.name,
        numa_nodes=int(answer["numa_nodes"]),
        bus_ids=tuple(map(str, answer["bus_ids"])),
        speed_mbit=answer["speed_mbit"],
        programs=str(answer["programs"]),
        with_mpi=bool(answer["with_mpi"]),
        mpirun=answer["mpirun"],
    )


def _engine(ready: Sequence[Ready], wish: str) -> str:
    """`auto`: torch, which needs no MPI; nccl-tests where some host has only these."""
    if wish != "auto":
        return wish
    programs = bool(ready) and all(host.programs and host.endpoint.gpus for host in ready)
    return "nccl-tests" if programs and not all(host.endpoint.torch for host in ready) else "torch"


def _uses_gpus(ready: Ready) -> bool:
    """The host has GPUs and a torch that is not built for CPUs."""
    return bool(ready.endpoint.gpus) and "+cpu" not in (ready.endpoint.torch or "")


def _without_gpus(ready: Sequence[Ready]) -> list[Finding]:
    """Return those for whose sake the others' GPUs were not measured: never silently."""
    lacking = [host for host in ready if not _uses_gpus(host)]
    if len(lacking) == len(ready):
        return []
    remedy = "leave it out with --limit, or look at its driver (`nodectl facts`) and at its torch"
    reasons = {True: "its torch is built for CPUs", False: "it has no GPU"}
    return [
        host_finding(
            NAME,
            host.name,
            Status.WARNING,
            f"all are measured over gloo and without GPUs, because {reasons[bool(host.endpoint.gpus)]}",
            remedy,
        )
        for host in lacking
    ]


def _without(ready: Ready, engine: str) -> Finding:
    if engine == "torch":
        return host_finding(NAME, ready.name, Status.UNKNOWN, f"no torch in {venv_of(ready.host)}", _PROVISION)
    remedy = "run `nodectl provision --tags nccl_tests` for it, or name their folder with nccl_tests_folder"
    return host_finding(NAME, ready.name, Status.UNKNOWN, f"no nccl-tests below {NCCL_TESTS} or on the path", remedy)


def common(values: Mapping[str, object]) -> object:
    """The value that all hosts have; by host where they differ."""
    distinct = {str(value) for value in values.values()}
    return next(iter(values.values()), None) if len(distinct) < 2 else dict(values)
