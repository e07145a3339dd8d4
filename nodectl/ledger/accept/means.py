"""The means that hosts have to be tried with, asked once before the plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.facts.look import Lab
from nodectl.model.acceptance import GpuIdentity
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.probes.base import Need
from nodectl.recordings.source import LiveSource
from nodectl.transport.base import Transport

_SUBJECTS = ("gpus", "ib_ports", "versions", "lab", "boot", "dcgm_health", "host_serial")


@dataclass(frozen=True, slots=True)
class Means:
    """Hold what one host has; None is what it did not tell.

    `machine` is the same for hosts of one lab, or containers of one machine. `recorded` names the recording that
    answers for its hardware.
    """

    host: str
    reached: bool = True
    gpus: int | None = None
    # of GeForce and TITAN, which DCGM diagnoses at its first level alone
    consumer: bool = False
    rdma: bool | None = None
    torch: bool | None = None
    iperf3: bool | None = None
    dcgm: bool = False
    machine: str = ""
    lab: bool = False
    recorded: str = ""
    serial: str = ""
    devices: tuple[GpuIdentity, ...] = ()

    def has(self, need: Need) -> bool:
        """Return whether the host has it, also if it cannot tell: the step will say why."""
        if self.recorded and need in (Need.GPU, Need.RDMA):
            return False
        answer = {
            Need.GPU: None if self.gpus is None else self.gpus > 0,
            Need.RDMA: self.rdma,
            Need.TORCH: self.torch,
            Need.IPERF3: self.iperf3,
        }[need]
        return answer is not False


def look(transport: Transport, hosts: Sequence[Host], forks: int) -> dict[str, Means]:
    """Ask all hosts, one round trip each; one that does not answer is not `reached`."""
    asked = facts_named(*_SUBJECTS)
    source = LiveSource(tuple(hosts), transport, forks)
    means: dict[str, Means] = {}
    for host, answer in source.recordings(lambda host: commands_for(host, asked)):
        if isinstance(answer, Recording):
            means[host.name] = _means(host.name, read_facts(answer, asked))
        else:
            means[host.name] = Means(host.name, reached=False)
    return {host.name: means[host.name] for host in hosts}


def _means(name: str, facts: Mapping[str, Any]) -> Means:
    gpus, lab, boot = (_known(facts, subject) for subject in ("gpus", "lab", "boot"))
    versions = _known(facts, "versions")
    in_lab = isinstance(lab, Lab)
    # a lab host that simulates no recording shows the hardware of this machine
    borrowed = in_lab and "sys" in lab.shared and not lab.recorded
    serial = None if borrowed else _known(facts, "host_serial")
    return Means(
        name,
        gpus=gpus.count if isinstance(gpus, Gpus) else _none_or_unknown(facts, "gpus"),
        consumer=isinstance(gpus, Gpus) and any(gpu.is_consumer for gpu in gpus.devices),
        rdma=_is_there(facts, "ib_ports"),
        torch=None if versions is None else versions.torch is not None,
        iperf3=None if versions is None else versions.iperf3 is not None,
        dcgm=_known(facts, "dcgm_health") is not None,
        # hosts of a lab share the operator's own machine, whatever a recording says
        machine=f"lab {lab.lab}" if in_lab else getattr(boot, "boot_id", ""),
        lab=in_lab,
        recorded=lab.recorded if in_lab else "",
        serial=serial or "",
        devices=_devices(gpus) if isinstance(gpus, Gpus) and not borrowed else (),
    )


def _devices(gpus: Gpus) -> tuple[GpuIdentity, ...]:
    return tuple(
        GpuIdentity(
            f"{gpu.label} at {gpu.bus_id.lower()}" if gpu.bus_id and gpu.bus_id not in gpu.label else gpu.label,
            gpu.uuid,
            gpu.name or "",
            gpu.serial if gpu.serial and gpu.serial.strip("0") else "",
        )
        for gpu in gpus.devices
        if gpu.uuid and gpu.uuid.strip("GPU0-")
    )


def _known(facts: Mapping[str, Any], subject: str) -> Any:
    value = facts.get(subject)
    return None if isinstance(value, Unread) else value


def _is_there(facts: Mapping[str, Any], subject: str) -> bool | None:
    value = facts.get(subject)
    if isinstance(value, Unread):
        return None if value.kind == "unknown" else False
    return bool(value)


def _none_or_unknown(facts: Mapping[str, Any], subject: str) -> int | None:
    value = facts.get(subject)
    return 0 if isinstance(value, Unread) and value.kind != "unknown" else None
