"""The plan of a job: who runs what with which addresses, ports and deadlines; pure, and nothing is started here."""

from __future__ import annotations

import ipaddress
import math
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from nodectl.common import node_paths
from nodectl.common.nodeset import fold
from nodectl.common.process import operator
from nodectl.errors import JobError, UsageError
from nodectl.jobs.engines import TORCHRUN
from nodectl.model.host import Host
from nodectl.payload.jobs.job_id import PLAN_VERSION

LEASE_S = 8.0
CODE_LIMIT_MIB = 64
HOST, NONE = NIC_BINDINGS = ("host", "none")
TRACERS = TORCH, NSYS = ("torch", "nsys")
_MIN_LEASE_S = 3.0
_GRACE_S = 3.0  # SIGTERM to SIGKILL; with detection and settling it keeps the whole end below 10 s
_START_DEADLINE_S = 30.0
# fewer heartbeats of a large fleet, where every host hears every other
_BEAT_S, _BEAT_LARGE_S, _LARGE_FLEET = 0.5, 1.0, 128
# below Linux's ephemeral ports (32768 and up), above the well-known services
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_CANDIDATES = 12
_PORTS_NEEDED = 2
# the kernel takes names of interfaces (and their longer altnames) without blanks and slashes
_INTERFACE = re.compile(r"[^\s/]{1,127}")
_INTERFACE_REMEDY = "say a name (eth1) or a network (10.1.0.0/16)"


@dataclass(frozen=True, slots=True)
class PlanHost:
    """A host in rank order; `interface`, `ib_hca`, `venv` are empty if the launcher, NCCL or the plan decides."""

    name: str
    address: str
    interface: str = ""
    ib_hca: str = ""
    venv: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """A folder on the nodes; `shared` if every host of the job sees the same one."""

    dir: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Container:
    """An image, its engine (empty: docker or podman), whether GPUs go into it, and further paths of the host."""

    image: str
    engine: str = ""
    gpus: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """How the ranks come to life: by torchrun with the plan's script, else by `engine` with `argv`.

    `module`: the script is a module's name. `chdir` is a folder that the hosts have; empty if the code is copied.
    `trace` is the profiler (torch, nsys).
    """

    engine: str = TORCHRUN
    argv: tuple[str, ...] = ()
    module: bool = False
    chdir: str = ""
    container: Container | None = None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the hosts need to know, and no secret value: `env_names` are names only.

    Of `hosts`, in rank order, the first `nodes` run the ranks; the others stand by. An attempt after a failure takes
    at least `least_nodes`.
    `skipped`: what preflight found and the operator let pass.
    `stayed`: places of the project that did not travel, with whose rule says so.
    """

    id: str
    created_at: float
    operator: str
    hosts: tuple[PlanHost, ...]
    nproc_per_node: int
    script: str
    args: tuple[str, ...]
    env_names: tuple[str, ...]
    master_port: int
    heartbeat_port: int
    lease_s: float
    launcher: str
    venv: str
    workdir: str = ""
    checkpoint: CheckpointPlan | None = None
    nodes: int = 0
    least_nodes: int = 0
    restarts: int = 0
    gpus_per_node: int = 0
    start: Start = Start()
    skipped: tuple[str, ...] = ()
    stayed: tuple[tuple[str, str], ...] = ()
    time_limit_s: float = 0.0
    grace_s: float = _GRACE_S
    start_deadline_s: float = _START_DEADLINE_S
    beat_s: float = _BEAT_S
    on_event: tuple[str, ...] = ()
    version: int = PLAN_VERSION

    @property
    def world_size(self) -> int:
        """The number of ranks over all hosts."""
        return (self.nodes or len(self.hosts)) * self.nproc_per_node

    def document(self) -> dict[str, object]:
        """Return the plan as plain data for JSON, as the nodes and --dry-run get it."""
        return asdict(self)


def new_job_id() -> str:
    """Sorts by time, and two launches in one second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def candidate_ports() -> tuple[int, ...]:
    """Ports to try on all hosts, different from launch to launch so that jobs do not meet."""
    first = secrets.randbelow(_LAST_PORT - _FIRST_PORT - _CANDIDATES) + _FIRST_PORT
    return tuple(range(first, first + _CANDIDATES))


def choose_ports(free: Sequence[int]) -> tuple[int, int]:
    """Master port and heartbeat port from those that are free on every host."""
    if len(free) < _PORTS_NEEDED:
        raise JobError(
            f"a job needs {_PORTS_NEEDED} ports that are free on every host; only {len(free)} of the tried ones are",
            "look for leftovers with `nodectl jobs list`, then launch again: other ports will be tried",
        )
    return free[0], free[1]


def choose_nproc(asked: int | None, gpu_counts: Sequence[int]) -> int:
    """Ranks a host: as asked, else one a GPU where all hosts have equally many, else (without GPUs) one."""
    if asked is not None:
        return asked
    if len(set(gpu_counts)) > 1:
        raise JobError(
            f"the hosts have different numbers of GPUs: {sorted(set(gpu_counts))}",
            "set --nproc-per-node, or leave the odd hosts out with --limit",
        )
    return max(1, gpu_counts[0])


def check_lease(lease_s: float) -> float:
    """Return the lease; raise JobError for one that would not outlive a few lost heartbeats."""
    if not math.isfinite(lease_s):
        raise UsageError(f"--lease {lease_s:g}: not a number of seconds", f"say at least {_MIN_LEASE_S:g}")
    if lease_s < _MIN_LEASE_S:
        raise JobError(
            f"a lease of {lease_s:g} s would end jobs at a short delay of the network",
            f"say at least {_MIN_LEASE_S:g} s",
        )
    return lease_s


def check_interface(asked: str | None) -> str | None:
    """Return a name as it is, or a network (`10.1.0.0/16`) in its own form; raise UsageError if it is neither."""
    if asked is None:
        return None
    if "/" not in asked:
        if not _INTERFACE.fullmatch(asked):
            raise UsageError(f"--interface {asked!r}: no name of an interface", _INTERFACE_REMEDY)
        return asked
    try:
        return str(ipaddress.ip_network(asked, strict=False))
    except ValueError as error:
        raise UsageError(f"--interface {asked}: {error}", _INTERFACE_REMEDY) from error


@dataclass(frozen=True, slots=True)
class NodeCount:
    """How many hosts run ranks: `most` of those there are, and never fewer than `least`."""

    least: int
    most: int


def count_nodes(hosts: int, nodes: str | None, spares: int | None) -> NodeCount | None:
    """Read `--nodes N`, `--nodes MIN:MAX` or `--spares K`; None for neither; raise UsageError for what cannot be."""
    if nodes is not None and spares is not None:
        raise UsageError(
            "--nodes MIN:MAX and --spares exclude each other: both set how many hosts are spares",
            "say one: hosts beyond --nodes are spares",
        )
    if spares is not None:
        if not 0 <= spares < hosts:
            raise UsageError(
                f"--spares {spares}: the inventory selects only {hosts} hosts", "leave one at least for the job"
            )
        return NodeCount(hosts - spares, hosts - spares)
    if nodes is None:
        return None
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", nodes)
    if match is None:
        raise UsageError(f"--nodes {nodes}: neither a number nor MIN:MAX", "say --nodes 4, or --nodes 2:4")
    count = NodeCount(int(match[1]), int(match[2] or match[1]))
    if not 1 <= count.least <= count.most <= hosts:
        reason = f"the inventory selects only {hosts} hosts" if count.most > hosts else "it is no range of hosts"
        raise UsageError(f"--nodes {nodes}: {reason}", f"1 to {hosts}, the smaller number first")
    return count


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The operator's request; `script` is named from `workdir`, `name` is the program's own."""

    script: str
    args: tuple[str, ...]
    nproc_per_node: int | None
    lease_s: float
    launcher: str
    venv: str
    env_names: tuple[str, ...]
    name: str
    workdir: str = ""
    checkpoint: str | None = None
    nodes: NodeCount | None = None
    restarts: int | None = None
    start: Start = Start()
    stayed: tuple[tuple[str, str], ...] = ()
    time_limit_s: float = 0.0
    on_event: tuple[str, ...] = ()

    def checkpoint_folder(self) -> str | None:
        """Return the folder as nodes take it: an absolute path, or `state:NAME` for nodectl's own on each."""
        if self.checkpoint is None or self.checkpoint.startswith("/"):
            return self.checkpoint
        if self.checkpoint != "auto":
            raise UsageError(
                f"--checkpoint {self.checkpoint}: not an absolute path on the nodes",
                "write /a/folder/on/the/nodes, or `auto` for a folder of nodectl's own",
            )
        return f"state:{self.name}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Preflight's results, by host in rank order; `skipped` are findings that --skip lets pass."""

    hosts: tuple[PlanHost, ...]
    gpu_counts: tuple[int, ...]
    free_ports: tuple[int, ...]
    skipped: tuple[str, ...] = ()
    container_engine: str = ""
    rdma_hosts: Collection[str] = ()


def make_plan(
    job_id: str, request: LaunchRequest, surroundings: Surroundings, checkpoint: CheckpointPlan | None
) -> Plan:
    """Make the plan; raise JobError where request and surroundings do not fit together."""
    master_port, heartbeat_port = choose_ports(surroundings.free_ports)
    hosts, gpus = len(surroundings.hosts), surroundings.gpu_counts
    nodes = request.nodes or NodeCount(hosts, hosts)
    replaceable = hosts > nodes.most or nodes.least < nodes.most
    restarts = request.restarts if request.restarts is not None else (max(1, hosts - nodes.least) if replaceable else 0)
    if restarts and checkpoint is not None and not checkpoint.shared:
        raise JobError(
            f"the hosts do not share the checkpoint folder {checkpoint.dir}; a restart may find none there",
            "name a folder that all hosts mount, or leave --checkpoint out: each attempt then starts afresh",
        )
    return Plan(
        id=job_id,
        created_at=time.time(),
        operator=operator(),
        hosts=surroundings.hosts,
        nproc_per_node=choose_nproc(request.nproc_per_node, gpus),
        script=request.script,
        args=request.args,
        env_names=request.env_names,
        master_port=master_port,
        heartbeat_port=heartbeat_port,
        lease_s=request.lease_s,
        launcher=request.launcher,
        venv=request.venv,
        workdir=request.workdir,
        checkpoint=checkpoint,
        nodes=nodes.most,
        least_nodes=nodes.least,
        restarts=restarts,
        gpus_per_node=min(gpus, default=0),
        start=_start(request.start, surroundings),
        skipped=surroundings.skipped,
        stayed=request.stayed,
        time_limit_s=request.time_limit_s,
        beat_s=_BEAT_S if hosts <= _LARGE_FLEET else _BEAT_LARGE_S,
        on_event=request.on_event,
    )


def _start(asked: Start, surroundings: Surroundings) -> Start:
    if asked.container is None:
        return asked
    container = replace(asked.container, engine=surroundings.container_engine, gpus=any(surroundings.gpu_counts))
    return replace(asked, container=container)


def venv_of(variables: Mapping[str, object], launcher: str, asked: str | None) -> str:
    """Return torchrun's environment: as asked, else the inventory's; empty for a launcher of the operator's own."""
    if asked is not None or launcher != node_paths.LAUNCHER:
        return asked or ""
    return str(variables.get("pytorch_venv") or node_paths.VENV)


def one_venv(hosts: Sequence[Host], launcher: str, asked: str | None) -> str:
    """Return the environment of all hosts, for what starts on them alike; raise UsageError if there are several."""
    venvs: dict[str, list[str]] = {}
    for host in hosts:
        venvs.setdefault(venv_of(host.variables, launcher, asked), []).append(host.name)
    if len(venvs) > 1:
        places = "; ".join(f"{venv} on {fold(names)}" for venv, names in venvs.items())
        raise UsageError(f"pytorch_venv is not the same on all hosts: {places}", "say --venv DIR, or take hosts of one")
    return next(iter(venvs))
