"""What a hardware profile would say of a host, as its facts show it: link of GPUs, switches, network ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpus
from nodectl.facts.network import Nic
from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiTopo
from nodectl.facts.rdma import ports_in
from nodectl.model.facts import Unread
from nodectl.profiles.schema import GpuLink

Facts = Mapping[str, object]
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}


class _UnreadError(Exception):
    """A fact that could not be read on the host, with the reason."""


def _value(facts: Facts, subject: str) -> object:
    """Return the fact; None if there is no such thing there."""
    value = facts.get(subject)
    if isinstance(value, Unread):
        if value.kind == "unknown":
            raise _UnreadError(value.reason)
        return None
    return value


def link_between_gpus(facts: Facts) -> GpuLink | None:
    """Return the link class that is found between all GPUs; None for fewer than two, and if it cannot be told."""
    try:
        matrix = _value(facts, "gpu_topology")
        if not isinstance(matrix, NvidiaSmiTopo) or len(matrix.gpus) < 2:
            return None
        links = [matrix.links.get(a, {}).get(b, "") for a, b in combinations(matrix.gpus, 2)]
        if not all(link.startswith("NV") for link in links):
            return "pcie"
        return "nvswitch" if _switched(facts) else "nvlink-bridge"
    except _UnreadError:
        return None


def has_switches(facts: Facts) -> bool | None:
    """Return whether NVSwitches join the GPUs; None if it cannot be told."""
    try:
        return _switched(facts)
    except _UnreadError:
        return None


def _switched(facts: Facts) -> bool | None:
    gpus = _value(facts, "gpus")
    if not isinstance(gpus, Gpus) or not gpus.devices:
        return None
    fabric = any((gpu.fabric_state or "").lower() == "completed" for gpu in gpus.devices)
    return fabric or isinstance(_value(facts, "fabric_manager"), FabricManager)


def ports_of(facts: Facts) -> tuple[tuple[int, float, str], ...] | None:
    """Return the ports by kind as (count, Gbit/s, kind of a profile's NIC); None if nobody could look."""
    try:
        _value(facts, "ib_ports")
        active = [port for port in ports_in(facts) if (port.state or "").upper() == "ACTIVE" and port.rate_gbit_s]
        kinds = Counter(
            (_KINDS.get(port.link_layer or "", "infiniband"), float(port.rate_gbit_s or 0)) for port in active
        )
        nics = _value(facts, "nics") if not active else None
    except _UnreadError:
        return None
    for nic in nics.values() if isinstance(nics, Mapping) else ():
        if isinstance(nic, Nic) and nic.driver and nic.kind is None and nic.state == "up" and nic.speed_mbit:
            kinds["ethernet", nic.speed_mbit / 1000] += 1
    return tuple((count, rate, kind) for (kind, rate), count in sorted(kinds.items()))
