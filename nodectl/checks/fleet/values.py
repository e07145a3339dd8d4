"""What one host brings to the comparison of a fleet: a text for each field that no profile of its own fixes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from nodectl.checks.base import Subject
from nodectl.checks.fleet.fields import ADDRESS, Key
from nodectl.checks.network.infiniband import is_active, ports_of
from nodectl.checks.network.nics import nics_of
from nodectl.common import file_systems
from nodectl.facts.cpu import Cpu
from nodectl.facts.kernel import Kernel
from nodectl.facts.kernel_knobs import KernelKnobs
from nodectl.facts.libraries import Libraries
from nodectl.facts.limits import SessionLimits
from nodectl.facts.memory import Memory
from nodectl.facts.modules import Modules
from nodectl.facts.mounts import Mounts
from nodectl.facts.nics import Nic
from nodectl.facts.numa import Numa
from nodectl.facts.pcie import Pcie
from nodectl.facts.sysctl import Sysctl
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.gpus import Gpus

Values = dict[Key, str | None]
# the kernel works these out from the memory of the machine
_BY_SIZE = {
    *("net.ipv4.tcp_mem", "vm.min_free_kbytes", "kernel.threads-max", "fs.inotify.max_user_watches", "fs.file-max"),
    *("kernel.pid_max", "net.ipv4.udp_mem"),
}
_MODULES = ("nvidia_peermem", "nv_peer_mem", "nvidia_uvm", "nvidia_fs", "gdrdrv", "ib_uverbs", "rdma_cm", "ib_ipoib")
_OPTIONS = ("ro", "rw", "hard", "soft", "vers", "rsize", "wsize", "nconnect", "noatime", "proto", "flock", "localflock")
# interfaces of containers and virtual machines have the same addresses everywhere
_MADE = ("docker", "br-", "virbr", "cni", "veth", "flannel", "kube", "lxc", "cali", "tailscale", "podman", "nodelocal")


def values_of(host: Subject) -> Values:
    """Field → text, None where the host could not tell; fields that it has nothing of are not there."""
    found: Values = {}
    for subject, read in _READERS:
        value = host.facts.get(subject)
        if isinstance(value, Unread) and value.kind == "unknown":
            found.update(dict.fromkeys(_UNREAD.get(subject, ())))
        elif value is not None and not isinstance(value, Unread):
            found.update({key: text for key, text in read(host) if text})
    return found


def _versions(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("versions", Versions)
    if found is None:
        return
    stack = host.wanted.stack if host.wanted else None
    yield ("driver", ""), found.driver
    for name, actual in (("torch", found.torch), ("cuda", found.cuda), ("nccl", found.nccl), ("cudnn", found.cudnn)):
        if stack is None or getattr(stack, name) is None:
            yield (name, ""), actual
    yield ("python", ""), found.venv_python


def _gpus(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("gpus", Gpus)
    if found is None or not found.devices:
        return
    yield ("gpu_model", ""), _counted([gpu.name for gpu in found.devices])
    yield ("vbios", ""), _distinct([gpu.vbios_version for gpu in found.devices])
    tuning = host.wanted.tuning.gpu if host.wanted else None
    settings: dict[str, list[str | None]] = {
        "ecc": [_said(gpu.ecc_mode_current) for gpu in found.devices],
        "mig": [_said(gpu.mig_mode) for gpu in found.devices],
        "persistence": [_said(gpu.persistence_mode) for gpu in found.devices],
        "compute mode": [gpu.compute_mode for gpu in found.devices],
        "power limit": [_said(gpu.power_limit_w) for gpu in found.devices],
    }
    if tuning and tuning.persistence:
        del settings["persistence"]
    if tuning and tuning.power_limit_w:
        del settings["power limit"]
    for name, given in settings.items():
        yield ("gpu_settings", name), _distinct(given)


def _said(value: object) -> str | None:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else None if value is None else f"{value}"


def _kernel(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("kernel", Kernel)
    if found:
        yield ("kernel", ""), found.release
        yield ("os", ""), found.os_name or found.os_id


def _sysctls(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.facts.get("sysctl")
    fixed = host.wanted.tuning.sysctl if host.wanted else {}
    for key, live in (found if isinstance(found, Mapping) else {}).items():
        if isinstance(live, Sysctl) and key not in fixed and key not in _BY_SIZE:
            yield ("sysctl", str(key)), live.value


def _knobs(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("kernel_knobs", KernelKnobs)
    if found:
        yield ("kernel_knobs", "governor"), " ".join(sorted(found.governors)) or None
        yield ("kernel_knobs", "huge pages"), found.transparent_hugepage
        yield ("kernel_knobs", "SMT"), found.smt


def _nics(host: Subject) -> Iterator[tuple[Key, str | None]]:
    known = nics_of(host)
    firmware: dict[str, list[str | None]] = defaultdict(list)
    rates = []
    for nic in known.values():
        if nic.driver and nic.kind is None:
            firmware[nic.driver].append(nic.firmware.split()[0] if nic.firmware else None)
            if nic.state == "up":
                rates.append(f"{nic.driver} {nic.speed_mbit or '?'} Mbit/s")
        if not (host.wanted and host.wanted.tuning.nic.mtu) and _is_own(nic):
            yield ("mtu", nic.name), str(nic.mtu)
    for driver, versions in firmware.items():
        yield ("nic_firmware", driver), _distinct(versions)
    yield ("nics", ""), _counted(rates)


def _is_own(nic: Nic) -> bool:
    """In use, and not one that containers or virtual machines made."""
    return bool(nic.addresses) and not nic.name.startswith(_MADE) and nic.kind not in ("bridge", "tun", "dummy")


def _ports(host: Subject) -> Iterator[tuple[Key, str | None]]:
    firmware: dict[str, list[str | None]] = defaultdict(list)
    for port in ports_of(host):
        if board := port.board_id or port.type:  # ibstat has no board, and the device's type
            firmware[board].append(port.firmware)
    for board, versions in firmware.items():
        yield ("ib_firmware", board), _distinct(versions)
    if not (host.wanted and any(each.kind != "ethernet" for each in host.wanted.hardware.nics)):
        active = [port for port in ports_of(host) if is_active(port)]
        yield (
            ("ib_ports", ""),
            _counted([f"{port.link_layer} {port.rate_gbit_s:g} Gbit/s" for port in active if port.rate_gbit_s]),
        )


def _bridges(host: Subject) -> Iterator[tuple[Key, str | None]]:
    pcie = host.fact("pcie", Pcie)
    if pcie and not (host.wanted and host.wanted.tuning.gpu.acs):
        yield ("acs", ""), "redirecting" if any(bridge.redirects for bridge in pcie.bridges) else "off"


def _cpu(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found, numa = host.fact("cpu", Cpu), host.fact("numa", Numa)
    if found:
        nodes = len(numa.nodes) if numa else found.numa_nodes
        yield ("cpu", ""), f"{found.sockets} x {found.model}, {found.threads} threads, {nodes} NUMA nodes"


def _memory(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("memory", Memory)
    if found:
        yield ("memory", ""), f"{found.installed_gib} GiB"


def _mounts(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("mounts", Mounts)
    for mount in found.mounts if found else ():
        if mount.kind in file_systems.NETWORK:
            kept = sorted(each for each in mount.options if each.partition("=")[0] in _OPTIONS)
            yield ("mounts", mount.target), f"{mount.source} ({mount.kind}: {','.join(kept)})"


def _modules(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("modules", Modules)
    if found:
        yield ("modules", ""), " ".join(name for name in _MODULES if name in found.loaded) or "none of them"


def _libraries(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("libraries", Libraries)
    versions: dict[str, list[str | None]] = defaultdict(list)
    for library in found.libraries if found else ():
        versions[library.name.partition(".so")[0]].append(library.version)
    for name, given in versions.items():
        yield ("libraries", name), _distinct(given)


def _limits(host: Subject) -> Iterator[tuple[Key, str | None]]:
    found = host.fact("limits", SessionLimits)
    wanted = host.wanted.tuning.limits if host.wanted else {}
    if found:
        given = {"memlock": found.memlock, "nofile": found.nofile, "stack": found.stack}
        yield from ((("limits", name), value) for name, value in given.items() if name not in wanted)


def _distinct(values: list[str | None]) -> str | None:
    return ", ".join(sorted({value for value in values if value})) or None


def _counted(values: list[str | None] | list[str]) -> str | None:
    counts = Counter(value for value in values if value)
    return ", ".join(f"{number} x {value}" for value, number in sorted(counts.items())) or None


_READERS: tuple[tuple[str, Callable[[Subject], Iterator[tuple[Key, str | None]]]], ...] = (
    ("versions", _versions),
    ("gpus", _gpus),
    ("kernel", _kernel),
    ("sysctl", _sysctls),
    ("kernel_knobs", _knobs),
    ("nics", _nics),
    ("ib_ports", _ports),
    ("pcie", _bridges),
    ("cpu", _cpu),
    ("memory", _memory),
    ("mounts", _mounts),
    ("modules", _modules),
    ("libraries", _libraries),
    ("limits", _limits),
)
# what stands for a subject that a host could not tell
_UNREAD: dict[str, tuple[Key, ...]] = {
    "versions": (("driver", ""), ("nccl", "")),
    "gpus": (("gpu_model", ""),),
    "kernel": (("kernel", ""),),
    "pcie": (("acs", ""),),
    "cpu": (("cpu", ""),),
    "memory": (("memory", ""),),
    "modules": (("modules", ""),),
}


def claims_of(host: Subject) -> dict[tuple[str, str], str]:
    """What no other machine may have: (kind, value) → where this one has it."""
    claims: dict[tuple[str, str], str] = {}
    for nic in nics_of(host).values():
        if _is_own(nic):
            claims.update({(ADDRESS, each.partition("/")[0]): nic.name for each in nic.addresses if _is_global(each)})
    found = host.fact("gpus", Gpus)
    for gpu in found.devices if found else ():
        claims.update({("GPU serial", gpu.serial): gpu.label} if gpu.serial and gpu.serial.strip("0") else {})
        claims.update({("GPU UUID", gpu.uuid): gpu.label} if gpu.uuid else {})
    for port in ports_of(host):
        claims.update({("port GUID", port.guid): port.device} if port.guid and port.guid.strip("0:x") else {})
    return claims


def _is_global(address: str) -> bool:
    return not address.startswith(("127.", "169.254.", "fe80:", "::1"))
