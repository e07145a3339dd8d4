"""The RDMA of each host, and what must hold before a port is measured: it is up, may be opened, has the right GID."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonpath

from nodectl.common.natural import natural
from nodectl.facts.rdma import Gid, IbPort
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions
from nodectl.probes.endpoints import Endpoint, Look, ask_all
from nodectl.probes.events import Event
from nodectl.probes.outliers import hardware_known
from nodectl.probes.rdma.argv import NAME, End, RdmaOptions
from nodectl.probes.rdma.errors import failed_finding
from nodectl.transport.base import Transport

_DEADLINE_S = 90.0
_VERSIONS = {"RoCE v2": "v2", "IB/RoCE v1": "v1", "RoCE v1": "v1"}


@dataclass(frozen=True, slots=True)
class Port(IbPort):
    """One RDMA port with what a test needs of it; `refused` is why a program cannot open its device, "" if it can.

    `pci` is the device's path below /sys/devices, `networks` are those that its interface reaches without a router.
    """

    carrier_changes: int | None = None
    cpus: tuple[int, ...] = ()
    pci: str | None = None
    gids: tuple[Gid, ...] = ()
    networks: tuple[str, ...] = ()
    refused: str = ""

    @property
    def is_ethernet(self) -> bool:
        """RoCE, where a GID must be chosen."""
        return self.link_layer == "Ethernet"


@dataclass(frozen=True, slots=True)
class Program:
    """One of perftest's on a host, and which of its options of interest it has."""

    version: str | None
    options: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA's: how many the bus has, where those with a driver sit, and how a NIC can read their memory."""

    on_bus: int = 0
    paths: tuple[str, ...] = ()
    peermem: bool = False
    open_modules: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A host's side: its address, ports, programs; `memlock_bytes` None is no limit."""

    endpoint: Endpoint
    ports: tuple[Port, ...]
    adapters: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)
    memlock_bytes: int | None = None
    gpus: Gpus = Gpus()

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.endpoint.host.name


def find_sites(
    transport: Transport, endpoints: Sequence[Endpoint], programs: Sequence[str], options: ProbeOptions
) -> tuple[list[Site], list[Finding]]:
    """Return the sites of hosts that answer, in the order of the endpoints, and a finding for each that does not."""
    by_host = {endpoint.host: endpoint for endpoint in endpoints}
    look = Look("probes.rdma.probe", lambda _: ["look", "--programs", ",".join(programs)], "rdma", _DEADLINE_S)
    return ask_all(
        transport, list(by_host), NAME, look, lambda host, answer: site_of(by_host[host], answer), options.forks
    )


def site_of(endpoint: Endpoint, answer: Event) -> Site:
    """Return the payload's answer as a value."""
    gpus, limit = answer["gpus"], answer["memlock"]
    locked = None if limit["exempt"] or limit["soft"] < 0 else int(limit["soft"])
    return Site(
        endpoint=endpoint,
        ports=tuple(_port(port) for port in answer["ports"]),
        adapters=tuple(answer["adapters"]),
        programs={
            name: Program(program["version"], tuple(program["options"])) for name, program in answer["programs"].items()
        },
        memlock_bytes=locked,
        gpus=Gpus(gpus["on_bus"], tuple(gpus["paths"]), gpus["peermem"], gpus["open_modules"]),
    )


def _port(answer: Event) -> Port:
    verbs = answer["verbs"]
    same = ("device", "port", "state", "physical_state", "rate_gbit_s", "link_layer", "netdev", "carrier_changes")
    return Port(
        **{name: answer[name] for name in (*same, "numa_node", "pci")},
        cpus=tuple(answer["cpus"]),
        gids=tuple(_gid(answer, gid) for gid in answer["gids"]),
        networks=tuple(answer["networks"]),
        mtu_active=verbs.get("mtu") if verbs else None,
        mtu_max=verbs.get("mtu_max") if verbs else None,
        refused="libibverbs is not installed" if verbs is None else verbs.get("error", ""),
    )


def _gid(port: Event, gid: Event) -> Gid:
    mapped = ipaddress.IPv6Address(gid["gid"]).ipv4_mapped
    return Gid(
        port["device"],
        port["port"],
        gid["index"],
        gid["gid"],
        _VERSIONS.get(gid["type"] or "") if port["link_layer"] == "Ethernet" else None,
        gid["netdev"],
        str(mapped) if mapped else None,
    )


_RDMA_KINDS = ("infiniband", "roce")
_PERMISSION = ("Permission denied", "Operation not permitted")
_NO_CUDA = "perftest there is built without CUDA: build it with CUDA_H_PATH, or install that of DOCA-OFED"


@dataclass(frozen=True, slots=True)
class Nic:
    """A port that can be measured, and what perftest is told of it."""

    port: Port
    rail: str
    end: End
    gid: Gid | None = None
    gpu_path: str = ""


def ready(
    sites: Sequence[Site], options: RdmaOptions, programs: Sequence[str]
) -> tuple[dict[str, dict[str, Nic]], list[Finding]]:
    """Each host's NICs that can be measured, by rail, and a finding for each that cannot."""
    anybody = any(site.ports for site in sites)
    nics: dict[str, dict[str, Nic]] = {}
    findings: list[Finding] = []
    for site in sites:
        lacking = [program for program in programs if program not in site.programs]
        # if there is no device nothing need be installed
        if site.ports and lacking:
            findings.append(failed_finding("not_installed", f"not installed: {', '.join(lacking)}", site.name))
            continue
        nics[site.name] = {}
        for rail, port in rails_of(site, options.device):
            nic = _nic(site, rail, port, options)
            if isinstance(nic, Nic):
                nics[site.name][rail] = nic
            else:
                findings.append(nic)
        if not rails_of(site, options.device):
            findings.append(_without_device(site, options.device, anybody))
    return nics, findings


def rails_of(site: Site, devices: Sequence[str] = ()) -> list[tuple[str, Port]]:
    """Return the host's ports (of these devices, if any are named) with their rails: by nodectl_rail, else by place."""
    chosen = [port for port in site.ports if not devices or port.device in devices or port.netdev in devices]
    chosen.sort(key=lambda port: (natural(port.device), port.port))
    rails = site.endpoint.host.variables.get("nodectl_rail")
    if isinstance(rails, Mapping):
        names = [str(rails.get(port.device, rails.get(port.netdev, ""))) for port in chosen]
    else:
        listed = rails if isinstance(rails, list) else [rails] if rails not in (None, "") else []
        names = [str(rail) for rail in listed] if len(listed) == len(chosen) else [""] * len(chosen)
    # two ports on one rail must still be told apart
    taken = Counter(names)
    labels = [name if name and taken[name] == 1 else str(place) for place, name in enumerate(names)]
    return list(zip(labels, chosen, strict=True))


def _without_device(site: Site, devices: Sequence[str], anybody: bool) -> Finding:
    there = ", ".join(port.label for port in site.ports)
    if devices and there:
        return failed_finding("no_device", f"no {', '.join(devices)}: it has {there}", site.name)
    if site.adapters:
        return failed_finding(
            "no_device", f"adapters {', '.join(site.adapters)} have no RDMA device: no driver", site.name
        )
    hardware = hardware_known(site.endpoint.host)
    named = hardware is not None and any(nic.kind in _RDMA_KINDS for nic in hardware.nics)
    why = "others here have one" if anybody else "its hardware profile names some" if named else ""
    if why or devices:
        return failed_finding("no_device", "; ".join(filter(None, ["the kernel has no RDMA device", why])), site.name)
    # the kernel has none, the bus has none, and nobody has one: there is no such hardware
    return failed_finding("no_device", "no RDMA device in the kernel or on the bus", site.name, status=Status.SKIPPED)


def _nic(site: Site, rail: str, port: Port, options: RdmaOptions) -> Nic | Finding:
    if port.refused:
        kind = "no_permission" if port.refused in _PERMISSION else "no_device"
        return failed_finding(kind, f"{port.label} cannot be opened: {port.refused}", site.name)
    if port.state != "ACTIVE":
        waits = port.state == "INIT" and port.link_layer == "InfiniBand"
        actual = f"{port.label} is {port.state or 'in no known state'}, link {port.physical_state or 'not told'}"
        return failed_finding("no_subnet_manager" if waits else "port_down", actual, site.name)
    gid = None
    if port.is_ethernet or options.gid_index is not None:
        chosen = choose_gid(port, options.gid_index)
        if isinstance(chosen, str):
            return failed_finding("bad_gid", f"{port.label}: {chosen}", site.name)
        gid = chosen
    index = None if gid is None else gid.index
    if options.memory == "host":
        return Nic(port, rail, End(port.device, port.port, index), gid)
    gpu = _gpu(site, port)
    if isinstance(gpu, Finding):
        return gpu
    number, dmabuf = gpu
    return Nic(port, rail, End(port.device, port.port, index, number, dmabuf), gid, site.gpus.paths[number])


def choose_gid(port: Port, index: int | None) -> Gid | str:
    """RoCE v2 with the interface's IPv4 address, else with a routable one; the index asked for; why there is none."""
    if index is not None:
        asked = [gid for gid in port.gids if gid.index == index]
        if not asked:
            return f"no GID at index {index}; set are {', '.join(str(gid.index) for gid in port.gids) or 'none'}"
        if asked[0].version == "v1":
            return f"the GID at index {index} is of RoCE v1, which does not pass routers"
        return asked[0]
    v2 = [gid for gid in port.gids if gid.version == "v2"]
    ipv4 = [gid for gid in v2 if gid.ipv4 and gid.netdev in (None, port.netdev)]
    wide = [gid for gid in v2 if not gid.gid.startswith("fe80:")]
    best = ipv4 or wide or v2
    return best[0] if best else "no GID of RoCE v2"


def _gpu(site: Site, port: Port) -> tuple[int, bool] | Finding:
    gpus = site.gpus
    if not gpus.on_bus:
        return failed_finding("gpu_memory", "no NVIDIA GPU on the bus", site.name, status=Status.SKIPPED)
    if not gpus.paths:
        return failed_finding("gpu_memory", "no driver has the GPUs", site.name, status=Status.UNKNOWN)
    offered = [set(program.options) for program in site.programs.values()]
    if not all("--use_cuda" in options_of for options_of in offered):
        return failed_finding("gpu_memory", _NO_CUDA, site.name, status=Status.UNKNOWN)
    has_dmabuf = all("--use_cuda_dmabuf" in options_of for options_of in offered)
    if not (has_dmabuf or gpus.peermem):
        return failed_finding(
            "gpu_memory", "neither nvidia-peermem is loaded, nor does perftest know DMA-BUF", site.name
        )
    near = [len(commonpath([path, port.pci])) if port.pci else 0 for path in gpus.paths]
    return near.index(max(near)), has_dmabuf and (gpus.open_modules or not gpus.peermem)
