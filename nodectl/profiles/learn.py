"""A hardware profile from hosts that are known to be good: what all of them are, and what was measured there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from nodectl.common.counting import counted
from nodectl.errors import ProfileError
from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpus
from nodectl.facts.network import Nic
from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiTopo
from nodectl.facts.processors import Cpu, Memory
from nodectl.facts.rdma import ports_in
from nodectl.model.acceptance import Acceptance
from nodectl.model.facts import Unread
from nodectl.model.measurement import Measurement
from nodectl.profiles.gpus import capability_of
from nodectl.profiles.load import Document, check_document
from nodectl.profiles.schema import GpuLink, Hardware

Facts = Mapping[str, object]
_FLOOR_TOLERANCE_PERCENT = 5
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}


@dataclass(frozen=True, slots=True)
class Learned:
    """The profile's document, and what it lacks, with the reason."""

    document: Document
    notes: tuple[str, ...] = ()


def learn(
    hosts: Mapping[str, Facts],
    *,
    names: str,
    day: str,
    measurements: Sequence[Measurement] = (),
    measured_in: str = "",
    capability: str | None = None,
) -> Learned:
    """`names` is how the hosts are called together, `measured_in` what the measurements are of, for their source.

    The conditions of `measurements` are those that a floor is to name, and more of their values is better.
    ProfileError where they disagree, naming field and hosts, or where one could not tell what it is.
    """
    notes: list[str] = []
    document: Document = {"description": ""}
    sources: dict[str, str] = {}
    for field, command, read in _FIELDS:
        value = _agreed(field, {host: _read(host, field, facts, read) for host, facts in hosts.items()})
        if value is None:
            continue
        document[field] = value
        sources[field] = f"learned from {names} on {day}: {command}"
    if not _complete_gpu(document, capability, notes):
        sources.pop("gpu", None)
    floors = list(
        _floors(measurements, frozenset(hosts), f"{measured_in + ', ' if measured_in else ''}learned on {day}")
    )
    if floors:
        document["floors"] = floors
    else:
        notes.append("no floors: nothing measured on these hosts was given (--measurements FILE, --from FILE)")
    document["sources"] = sources
    document["description"] = _description(document, len(hosts))
    check_document(Hardware, document, "the learned profile")
    return Learned(document, tuple(notes))


def accepted_in(acceptance: Acceptance, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the hosts of an acceptance that may be learned from: those `named`, else all that it accepts.

    ProfileError where it has not ended, accepts none, or one that is named is not among them.
    """
    remedy = "learn from hosts that an acceptance accepts"
    if acceptance.ended is None:
        raise ProfileError(f"the acceptance {acceptance.id} has not ended", f"nodectl accept --resume {acceptance.id}")
    verdicts = {host.host: host.verdict for host in acceptance.hosts}
    accepted = tuple(name for name, verdict in verdicts.items() if verdict.accepts)
    if not accepted:
        raise ProfileError(
            f"the acceptance {acceptance.id} accepts none of its {counted(len(verdicts), 'host')}", remedy
        )
    refused = [f"{name}: {verdicts.get(name, 'no host of it')}" for name in named if name not in accepted]
    if refused:
        raise ProfileError(f"not accepted in {acceptance.id}: {'; '.join(refused)}", remedy)
    return tuple(named) or accepted


def taken_on(acceptance: Acceptance, hosts: Sequence[str]) -> list[Measurement]:
    """Return what the acceptance measured with these hosts alone; ProfileError where that is nothing."""
    taken = [row.measurement for row in acceptance.taken]
    rows = [row for row in taken if row.hosts and set(hosts).issuperset(row.hosts)]
    if not rows:
        raise ProfileError(
            f"the acceptance {acceptance.id} measured nothing with accepted hosts alone",
            "accept them at a level that measures",
        )
    return rows


def _read(host: str, field: str, facts: Facts, read: Callable[[Facts], Any]) -> Any:
    try:
        return read(facts)
    except _UnreadError as error:
        remedy = "learn from hosts that tell all; `nodectl facts` there shows what is in the way"
        raise ProfileError(f"{host}: {field}: {error}", remedy) from error


class _UnreadError(Exception):
    """A fact that could not be read on the host, with the reason."""


def _value(facts: Facts, subject: str) -> object:
    """Return the fact; None where there is no such thing there."""
    value = facts.get(subject)
    if isinstance(value, Unread):
        if value.kind == "unknown":
            raise _UnreadError(value.reason)
        return None
    return value


def _agreed(field: str, values: Mapping[str, Any]) -> Any:
    groups: dict[str, list[str]] = defaultdict(list)
    for host, value in values.items():
        groups[repr(value)].append(host)
    if len(groups) > 1:
        differing = "; ".join(f"{', '.join(hosts)}: {_text(values[hosts[0]])}" for hosts in groups.values())
        raise ProfileError(
            f"the hosts disagree on {field}: {differing}", "learn from hosts of one kind, or mend the odd one"
        )
    return next(iter(values.values()))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{key} {inner}" for key, inner in value.items())
    return "none" if value is None else str(value)


def _gpus(facts: Facts) -> int:
    gpus = _value(facts, "gpus")
    if isinstance(gpus, Gpus) and gpus.lost:
        raise _UnreadError(f"lost GPUs: {', '.join(gpus.lost)}")
    return gpus.count if isinstance(gpus, Gpus) else 0


def _gpu(facts: Facts) -> dict[str, Any] | None:
    gpus = _value(facts, "gpus")
    if not isinstance(gpus, Gpus) or not gpus.devices:
        return None
    kinds = {
        (gpu.name, None if gpu.memory_total_mib is None else round(gpu.memory_total_mib / 1024)) for gpu in gpus.devices
    }
    if len(kinds) > 1:
        raise _UnreadError(f"GPUs of several kinds: {', '.join(sorted(str(name) for name, _ in kinds))}")
    ((name, memory_gb),) = kinds
    if name is None or not memory_gb:
        raise _UnreadError("the driver does not name model and memory")
    return {"model": name, "memory_gb": memory_gb}


def link_between_gpus(facts: Facts) -> GpuLink | None:
    """Return the link class that is found between all GPUs; None for fewer than two, and where it cannot be told."""
    try:
        return _link(facts)
    except _UnreadError:
        return None


def _link(facts: Facts) -> GpuLink | None:
    matrix = _value(facts, "gpu_topology")
    if not isinstance(matrix, NvidiaSmiTopo) or len(matrix.gpus) < 2:
        return None
    links = [matrix.links.get(a, {}).get(b, "") for a, b in combinations(matrix.gpus, 2)]
    if not all(link.startswith("NV") for link in links):
        return "pcie"
    return "nvswitch" if _switched(facts) else "nvlink-bridge"


def _switched(facts: Facts) -> bool | None:
    gpus = _value(facts, "gpus")
    if not isinstance(gpus, Gpus) or not gpus.devices:
        return None
    fabric = any((gpu.fabric_state or "").lower() == "completed" for gpu in gpus.devices)
    return fabric or isinstance(_value(facts, "fabric_manager"), FabricManager)


def _nics(facts: Facts) -> list[dict[str, Any]]:
    _value(facts, "ib_ports")  # an error where nobody could look
    active = [port for port in ports_in(facts) if (port.state or "").upper() == "ACTIVE" and port.rate_gbit_s]
    kinds = Counter((_KINDS.get(port.link_layer or "", "infiniband"), float(port.rate_gbit_s or 0)) for port in active)
    nics = _value(facts, "nics") if not active else None
    for nic in nics.values() if isinstance(nics, Mapping) else ():
        if isinstance(nic, Nic) and nic.driver and nic.kind is None and nic.state == "up" and nic.speed_mbit:
            kinds["ethernet", nic.speed_mbit / 1000] += 1
    return [
        {"count": count, "rate_gbit": int(rate) if rate == int(rate) else rate, "kind": kind}
        for (kind, rate), count in sorted(kinds.items())
    ]


def ports_of(facts: Facts) -> tuple[tuple[int, float, str], ...] | None:
    """Return the ports by kind as (count, Gbit/s, kind of a profile's NIC); None where nobody could look."""
    try:
        return tuple((nic["count"], float(nic["rate_gbit"]), nic["kind"]) for nic in _nics(facts))
    except _UnreadError:
        return None


def has_switches(facts: Facts) -> bool | None:
    """Return whether NVSwitches join the GPUs; None where it cannot be told."""
    try:
        return _switched(facts)
    except _UnreadError:
        return None


def _cpu(facts: Facts) -> dict[str, Any] | None:
    cpu = _value(facts, "cpu")
    if not isinstance(cpu, Cpu) or cpu.model is None or cpu.sockets is None or cpu.cores is None:
        return None
    return {"model": cpu.model, "sockets": cpu.sockets, "cores": cpu.cores, "threads": cpu.threads}


def _memory(facts: Facts) -> int | None:
    memory = _value(facts, "memory")
    return memory.installed_gib if isinstance(memory, Memory) else None


_FIELDS: tuple[tuple[str, str, Callable[[Facts], Any]], ...] = (
    ("gpus", "nvidia-smi -q", _gpus),
    ("gpu", "nvidia-smi -q", _gpu),
    ("link", "nvidia-smi topo -m", _link),
    ("nvswitch", "nvidia-smi -q, fabric manager", _switched),
    ("nics", "/sys/class/infiniband, ip address", _nics),
    ("cpu", "lscpu", _cpu),
    ("memory_gb", "/proc/meminfo", _memory),
)


def _complete_gpu(document: Document, capability: str | None, notes: list[str]) -> bool:
    """Return whether there is a GPU to tell of. What it can compute is in the matrix, or the operator says it."""
    gpu = document.get("gpu")
    if gpu is None:
        return False
    computed = capability or capability_of(str(gpu["model"]))
    if computed is None:
        del document["gpu"]
        notes.append(f"no gpu: what a {gpu['model']} can compute is not known here; give --compute-capability")
        return False
    gpu["compute_capability"] = computed
    return True


def _floors(measurements: Sequence[Measurement], hosts: frozenset[str], whence: str) -> Iterator[dict[str, Any]]:
    """Yield the worst of what was measured under the same conditions, where all that took part are among the hosts."""
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if measurement.hosts and hosts.issuperset(measurement.hosts) and measurement.value > 0:
            conditions = sorted(measurement.conditions.items(), key=str)
            groups[repr((measurement.probe, measurement.unit, conditions))].append(measurement)
    for group in groups.values():
        first, least = group[0], min(measurement.value for measurement in group)
        names = ", ".join(sorted({host for measurement in group for host in measurement.hosts}))
        yield {
            "probe": first.probe,
            "conditions": dict(first.conditions),
            "value": least,
            "unit": first.unit,
            "tolerance_percent": _FLOOR_TOLERANCE_PERCENT,
            "source": f"measured on {names}, {counted(len(group), 'value')}, {whence}",
        }


def _description(document: Document, number: int) -> str:
    gpu = document.get("gpu")
    parts = [f"{document['gpus']} x {gpu['model']}" if gpu else counted(document["gpus"], "GPU")]
    parts += [f"{nic['count']} x {nic['rate_gbit']} Gbit/s {nic['kind']}" for nic in document.get("nics", ())]
    return f"{', '.join(parts)}: learned from {counted(number, 'host')}"
