"""The hosts that can take part in a collective: where each is reached, and what it has to measure with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.common.node_paths import NCCL_TESTS
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.probes.base import host_finding
from nodectl.probes.endpoints import Endpoint, failure, find_endpoints
from nodectl.probes.events import Event, Events
from nodectl.probes.nccl.options import NcclOptions
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

NAME = "nccl"
# where the role nccl_tests builds them; the host variable of this name says otherwise
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
    """Who takes part, by which engine and backend, and why others do not."""

    ready: tuple[Ready, ...]
    engine: str
    backend: str
    findings: tuple[Finding, ...]


def find_fleet(transport: Transport, hosts: Sequence[Host], options: NcclOptions) -> Fleet:
    """Ask all hosts; one engine for all, as figures of two say nothing of each other."""
    endpoints, findings = find_endpoints(transport, hosts, NAME, options)
    looks = dict(fan_out(endpoints, lambda each: _look(transport, each), options.forks))
    able: list[Ready] = []
    for each in endpoints:
        found = looks[each]
        if isinstance(found, Ready):
            able.append(found)
        else:
            findings.append(host_finding(NAME, each.host.name, Status.UNKNOWN, *found))
    engine = _engine(able, options.engine)
    ready, lacking = [], []
    for one in able:
        if one.endpoint.torch if engine == "torch" else one.programs:
            ready.append(one)
        else:
            lacking.append(_without(one, engine))
    backend = "nccl" if engine != "torch" else _backend([ready_host.endpoint for ready_host in ready])
    if backend == "gloo":
        lacking += _without_gpus(ready)
    return Fleet(tuple(ready), engine, backend, (*findings, *lacking))


def _look(transport: Transport, endpoint: Endpoint) -> Ready | tuple[str, str]:
    events = Events()
    folder = endpoint.host.variables.get("nccl_tests_folder")
    args = ["look", f"--folder={folder if isinstance(folder, str) and '{{' not in folder else NCCL_TESTS}"]
    args.append(f"--interface={endpoint.interface}")
    done: CommandResult = run_payload(
        transport, endpoint.host, "probe_nccl", args, timeout_s=_DEADLINE_S, on_output=events.add
    )
    looks = events.of("look")
    return _ready(endpoint, looks[0]) if done.ok and looks else failure(done, events)


def _ready(endpoint: Endpoint, told: Event) -> Ready:
    return Ready(
        endpoint,
        machine=str(told["machine"]) or endpoint.host.name,
        numa_nodes=int(told["numa_nodes"]),
        bus_ids=tuple(map(str, told["bus_ids"])),
        speed_mbit=told["speed_mbit"],
        programs=str(told["programs"]),
        with_mpi=bool(told["with_mpi"]),
        mpirun=told["mpirun"],
    )


def _engine(ready: Sequence[Ready], wish: str) -> str:
    """`auto`: torch, which needs no MPI; nccl-tests where some host has only these."""
    if wish != "auto":
        return wish
    programs = bool(ready) and all(ready_host.programs and ready_host.endpoint.gpus for ready_host in ready)
    return "nccl-tests" if programs and not all(ready_host.endpoint.torch for ready_host in ready) else "torch"


def _backend(endpoints: Sequence[Endpoint]) -> str:
    """NCCL where every host has GPUs and a torch that is not built for CPUs."""
    return "nccl" if all(map(_uses_gpus, endpoints)) else "gloo"


def _uses_gpus(endpoint: Endpoint) -> bool:
    return bool(endpoint.gpus) and "+cpu" not in (endpoint.torch or "")


def _without_gpus(ready: Sequence[Ready]) -> list[Finding]:
    """Those for whose sake the others' GPUs were not measured: never silently."""
    lacking = [ready_host for ready_host in ready if not _uses_gpus(ready_host.endpoint)]
    if len(lacking) == len(ready):
        return []
    said = "all are measured over gloo and without GPUs, because "
    remedy = "leave it out with --limit, or look at its driver (`nodectl facts`) and at its torch"
    why = {True: "its torch is built for CPUs", False: "it has no GPU"}
    return [
        host_finding(NAME, each.name, Status.WARNING, said + why[bool(each.endpoint.gpus)], remedy) for each in lacking
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
