"""A subject in one line, equal for hosts that an operator would call equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodectl.common import file_systems
from nodectl.facts.summary_gpus import gpu_words
from nodectl.model.facts import Clock, Cpu, Disk, Kernel, Lab, Memory, Numa, Unread, Versions
from nodectl.model.network import Gid, IbPort, Nic
from nodectl.model.pcie import Pcie
from nodectl.model.settings import ClockSync, NcclFiles, SessionLimits, Sysctl
from nodectl.model.system import (
    Boot,
    KernelKnobs,
    Libraries,
    Listening,
    MemoryErrors,
    Modules,
    Mounts,
    Processes,
    SlurmNode,
    UnitLimits,
    Units,
)
from nodectl.parsers.linux.dmesg import Dmesg

# below this the offset that a round trip can show is its own delay
_CLOCK_CLOSE_S = 0.1
_OF_TRAINING = ("nvidia", "nvidia_uvm", "nvidia_peermem", "nouveau", "mlx5_ib", "ib_uverbs", "rdma_rxe", "gdrdrv")
_HOUR_S = 3600


def summary(value: object) -> str:
    """Its words; empty for what needs no line."""
    if isinstance(value, Unread):
        return "" if value.reason == "not a lab host" else f"{value.kind}: {value.reason}"
    if isinstance(value, dict):
        return _many(list(value.values()))
    if isinstance(value, tuple):
        return _ports(value)
    return gpu_words(value) or _machine(value) or _system(value) or str(value)


def _machine(value: object) -> str:
    match value:
        case Cpu():
            counts = _words(socket=value.sockets, core=value.cores, thread=value.threads)
            return f"{value.model or 'model not named'}, {counts}, {_words(**{'NUMA node': value.numa_nodes})}"
        case Numa():
            return "; ".join(f"{node.node}: {node.cpus or 'no CPU'}, {_gib(node.memory_mib)}" for node in value.nodes)
        case Memory():
            return f"{_gib(value.total_mib)}, swap {_gib(value.swap_mib)}, /dev/shm {_gib(value.shm_mib)}"
        case MemoryErrors():
            bad = [each for each in value.controllers if each.corrected or each.uncorrected]
            told = (f"{each.name} {each.corrected} corrected, {each.uncorrected} not" for each in bad)
            return "; ".join(told) or f"none on {len(value.controllers)} controllers"
        case Pcie():
            on = sum(bridge.redirects for bridge in value.bridges)
            return f"{len(value.links)} links, access control on at {on} of {len(value.bridges)} bridges"
        case Disk():
            return f"/ {_gib(value.root_free_mib)} free of {_gib(value.root_size_mib)}"
        case Mounts():
            shared = [f"{each.target} ({each.kind})" for each in value.mounts if each.kind in file_systems.NETWORK]
            return f"{len(value.mounts)} mounted" + (f", over the network: {', '.join(shared)}" if shared else "")
        case Clock():
            close = abs(value.offset_s) < _CLOCK_CLOSE_S
            return f"within {_CLOCK_CLOSE_S:g} s of ours" if close else f"{value.offset_s:+.1f} s off ours"
        case Lab():
            shown = f"; hardware recorded: {value.recorded}" if value.recorded else ""
            return f"{value.lab}; the machine's, shared by all its hosts: {', '.join(value.shared)}{shown}"
    return ""


def _system(value: object) -> str:
    match value:
        case Kernel():
            return f"{value.os_name or value.os_id or 'no os-release'}, {value.name} {value.release}"
        case Boot():
            return f"up {value.uptime_s / _HOUR_S:.0f} h"
        case KernelKnobs():
            governors = ", ".join(sorted(value.governors)) or "no governor"
            pages = f"huge pages {value.transparent_hugepage or '?'}"
            return f"{governors}, {pages}, NUMA balancing {_or(value.numa_balancing)}"
        case Modules():
            return f"{len(value.loaded)} loaded, of these: {_list(set(value.loaded) & set(_OF_TRAINING))}"
        case SessionLimits():
            return f"session: memlock {value.memlock}, nofile {value.nofile}, stack {value.stack}"
        case UnitLimits():
            ipc = {True: ", RemoveIPC on", False: ""}.get(bool(value.remove_ipc), "")
            return f"unit: memlock {_or(value.memlock)}, nofile {_or(value.nofile)}, stack {_or(value.stack)}{ipc}"
        case Versions():
            return _versions(value)
        case Libraries():
            return _list({f"{each.name} {each.version or ''}".strip() for each in value.libraries})
        case Dmesg():
            kinds = Counter(event.kind for event in value.events)
            return ", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items())) or "no event of note"
        case ClockSync():
            return value.told
        case NcclFiles():
            given = {"/etc/nccl.conf": value.system, "~/.nccl.conf": value.user}
            return _list({name for name, text in given.items() if text is not None}, "no file")
        case Units():
            active = {name for name, unit in value.units.items() if unit.active == "active"}
            return f"{value.system}; failed: {_list(set(value.failed))}; active: {_list(active)}"
        case SlurmNode():
            return "+".join(value.states) + (f", {value.reason}" if value.reason else "")
        case Processes():
            return f"load {value.load_1:.1f}, {len(value.uninterruptible)} stuck, {_words(zombie=value.zombies)}"
        case Listening():
            return f"TCP {', '.join(map(str, value.ports)) or 'none'}"
    return ""


def _many(values: list[object]) -> str:
    if values and isinstance(values[0], Sysctl):
        return f"{sum(1 for each in values if isinstance(each, Sysctl) and each.value is not None)} settings read"
    return "; ".join(_nic(each) for each in values if isinstance(each, Nic)) or "none but the loopback"


def _ports(values: tuple[object, ...]) -> str:
    if any(isinstance(each, Gid) for each in values):
        kinds = Counter(each.version or "InfiniBand" for each in values if isinstance(each, Gid))
        return ", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()))
    ports = Counter(
        f"{each.state or '?'} {each.rate_gbit_s or 0:g} Gbit/s {each.link_layer or ''}".strip()
        for each in values
        if isinstance(each, IbPort)
    )
    return ", ".join(f"{many} x {text}" for text, many in ports.most_common()) or "none"


def _nic(nic: Nic) -> str:
    extra = [f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else "", nic.driver or nic.kind or ""]
    return " ".join([nic.name, nic.state, f"mtu {nic.mtu}", *filter(None, extra)])


def _versions(value: Versions) -> str:
    named = {
        "python": value.python3,
        "torch": value.torch,
        "cuda": value.cuda,
        "nccl": value.nccl,
        "driver": value.driver,
        "iperf3": value.iperf3,
    }
    return ", ".join(f"{name} {version or '-'}" for name, version in named.items())


def _words(**counts: int | None) -> str:
    return ", ".join(f"{'?' if n is None else n} {name}{'' if n == 1 else 's'}" for name, n in counts.items())


def _gib(mib: int | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def _or(value: object) -> str:
    return "?" if value is None else str(value)


def _list(names: Iterable[str], nothing: str = "none") -> str:
    return ", ".join(sorted(names)) or nothing
