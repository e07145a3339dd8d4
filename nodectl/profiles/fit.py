"""The hardware profile and the stack that fit what was found on a host, and what its facts show for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodectl.common.natural import natural
from nodectl.errors import ProfileError
from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpus
from nodectl.facts.network import Nic
from nodectl.facts.rdma import ports_in
from nodectl.model.facts import Unread
from nodectl.profiles.compat import profile_problems
from nodectl.profiles.host_compat import HostLook, host_problems
from nodectl.profiles.load import find_profiles
from nodectl.profiles.matrix import cuda_minor, matrix
from nodectl.profiles.nccl import version_key
from nodectl.profiles.resolve import base_tuning, load_profile, load_stacks, merge
from nodectl.profiles.schema import Hardware, Stack

Facts = Mapping[str, object]
_KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}
# count, Gbit/s, infiniband, roce or ethernet
Ports = tuple[int, float, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold what a host is made of, as far as could be told.

    `models` are the driver's names of the GPUs and `devices` their PCI ids, each kind once; `ports` are network ports
    of one kind. None: nobody could look.
    """

    gpus: int
    models: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    nvswitch: bool | None = None
    ports: tuple[Ports, ...] | None = None

    @property
    def named(self) -> str:
        """The GPUs in words: model names, else what their PCI ids may be."""
        rows = (row.name for row in map(matrix().device, self.devices) if row)
        return " and ".join(self.models or dict.fromkeys(rows)) or "NVIDIA GPU"


def fitting_hardware(seen: Seen, extra_dirs: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the hardware profiles that fit best, several if nothing tells them apart; empty if none fits."""
    scores: dict[str, int] = {}
    for name in find_profiles("hardware", extra_dirs):
        with suppress(ProfileError):  # a malformed one is refused if it is used
            hardware = load_profile("hardware", name, extra_dirs)
            if isinstance(hardware, Hardware) and (score := _score(hardware, seen)):
                scores[name] = score
    best = max(scores.values(), default=0)
    return tuple(sorted((name for name, score in scores.items() if score == best), key=natural))


def _score(hardware: Hardware, seen: Seen) -> int:
    if hardware.gpus != seen.gpus:
        return 0
    if not seen.gpus:
        return 1
    model = _alike(hardware, seen)
    if not model or (seen.nvswitch is not None and seen.nvswitch != hardware.nvswitch):
        return 0
    ports = {(nic.count, nic.rate_gbit, nic.kind) for nic in hardware.nics}
    return 4 * model + 2 * (seen.ports is not None and bool(ports) and ports <= set(seen.ports)) + (not ports)


def _alike(hardware: Hardware, seen: Seen) -> int:
    model = hardware.gpu.model if hardware.gpu else ""
    if not model or len(seen.models) > 1 or len(seen.devices) > 1:
        return 0
    if seen.models:
        (name,) = seen.models
        return 2 if name == model else 1 if name.startswith(f"{model} ") else 0
    return int(any(row.is_model(model) for row in map(matrix().device, seen.devices) if row))


def fitting_stacks(
    hardware: Hardware, look: HostLook, extra_dirs: Sequence[Path] = (), *, installed: Sequence[str | None] = ()
) -> tuple[str, ...]:
    """Return the stacks that the host can have, the best first.

    First come those of what is `installed` (torch, its CUDA), then what nothing warns of, then the newest.
    """
    torch, cuda = (*installed, None, None)[:2]

    def rank(name: str) -> tuple[bool, bool, tuple[int, ...], tuple[int, ...]]:
        stack = stacks[name]
        have = bool(torch and cuda) and (_plain(stack.torch), cuda_minor(stack.cuda)) == (
            _plain(torch),
            cuda_minor(cuda),
        )
        return (
            have,
            not any(profile_problems(hardware, stack, base_tuning(), matrix())),
            version_key(stack.cuda or "0"),
            version_key(_plain(stack.torch)),
        )

    stacks = {name: stack for name, stack in load_stacks(extra_dirs).items() if _can(hardware, stack, look)}
    return tuple(sorted(stacks, key=rank, reverse=True))


def fitting(look: HostLook, extra_dirs: Sequence[Path] = ()) -> tuple[tuple[str, ...], str]:
    """Return the hardware profiles and the best stack of a host that was looked at; empty if none fits."""
    devices = tuple(str(gpu.get("device", "")) for gpu in look.node.gpus)
    kinds = tuple(dict.fromkeys(device for device in devices if device))
    names = fitting_hardware(Seen(len(devices), devices=kinds, nvswitch=look.node.nvswitch), extra_dirs)
    hardware = merge({"hardware": names[0] if names else "auto", "tuning": "stock"}, extra_dirs=extra_dirs).hardware
    return names, next(iter(fitting_stacks(hardware, look, extra_dirs)), "")


def _can(hardware: Hardware, stack: Stack, look: HostLook) -> bool:
    gpus = len(look.node.gpus) if hardware.gpus is None else hardware.gpus
    if stack.torch is None or bool(stack.cuda) != bool(gpus):
        return False
    problems = (
        *profile_problems(hardware, stack, base_tuning(), matrix()),
        *host_problems(hardware, stack, base_tuning(), look, matrix()),
    )
    return not any(problem.refuses for problem in problems if problem.other_stack or not problem.misfit)


def _plain(torch: str | None) -> str:
    return (torch or "0").partition("+")[0]


def _is_unknown(facts: Facts, subject: str) -> bool:
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


def ports_of(facts: Facts) -> tuple[Ports, ...] | None:
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
