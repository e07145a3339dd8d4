"""What a hardware profile would say of a host, as its facts show it: link of GPUs, switches, network ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpus
from nodectl.facts.network import Nic
from nodectl.facts.rdma import ports_in
from nodectl.model.facts import Unread

Facts = Mapping[str, object]
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}


def _is_unknown(facts: Facts, subject: str) -> bool:
    """Return whether the fact could not be read; False if there is no such thing there."""
    value = facts.get(subject)
    return isinstance(value, Unread) and value.kind == "unknown"


def has_switches(facts: Facts) -> bool | None:
    """Return whether NVSwitches join the GPUs; None if it cannot be told."""
    gpus = facts.get("gpus")
    if not isinstance(gpus, Gpus) or not gpus.devices:
        return None
    if any((gpu.fabric_state or "").lower() == "completed" for gpu in gpus.devices):
        return True
    return None if _is_unknown(facts, "fabric_manager") else isinstance(facts.get("fabric_manager"), FabricManager)


def ports_of(facts: Facts) -> tuple[tuple[int, float, str], ...] | None:
    """Return the ports by kind as (count, Gbit/s, kind of a profile's NIC); None if nobody could look."""
    if _is_unknown(facts, "ib_ports"):
        return None
    active = [port for port in ports_in(facts) if (port.state or "").upper() == "ACTIVE" and port.rate_gbit_s]
    if not active and _is_unknown(facts, "nics"):
        return None
    kinds = Counter((_KINDS.get(port.link_layer or "", "infiniband"), float(port.rate_gbit_s or 0)) for port in active)
    nics = None if active else facts.get("nics")
    for nic in nics.values() if isinstance(nics, Mapping) else ():
        if isinstance(nic, Nic) and nic.driver and nic.kind is None and nic.state == "up" and nic.speed_mbit:
            kinds["ethernet", nic.speed_mbit / 1000] += 1
    return tuple((count, rate, kind) for (kind, rate), count in sorted(kinds.items()))
