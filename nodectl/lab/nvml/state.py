"""The state of the simulated NVML: a recording's GPUs and links as NVML's functions return them (form: library.c)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.common.resources import table
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, UnknownError
from nodectl.facts.gpus import GPU_TOPOLOGY_FACT, GPUS_FACT, NVLINK_FACT, P2P_FACT, Gpu
from nodectl.model.recording import Recording
from nodectl.profiles.gpus import model_of, products

Row = tuple[object, str, object]
_MBPS = 1000


@cache
def _names() -> Mapping[str, Any]:
    names: Mapping[str, Any] = table(Path(__file__).with_name("names.yml"))
    return names


def state_of(recording: Recording) -> str:
    """Return the state in which nvidia-smi prints what the recording's nvidia-smi printed."""
    gpus = GPUS_FACT.read(recording)
    major, _, minor = (gpus.cuda_version or "0.0").partition(".")
    cuda = 1000 * int(major) + 10 * int(minor)
    rows: list[Row] = [("-", "DriverVersion", gpus.driver_version), ("-", "NVMLVersion", gpus.driver_version)]
    rows.append(("-", "CudaDriverVersion", cuda))
    for number, gpu in enumerate(gpus.devices):
        rows += [(number, key, value) for key, value in _gpu(gpu)]
    for links in (_topology, _peers, _nvlinks):
        with suppress(AbsentError, UnknownError, ParseError):
            rows += links(recording)
    return "".join(f"{gpu} {key} {value}\n" for gpu, key, value in rows)


def _gpu(gpu: Gpu) -> Iterator[tuple[str, object]]:
    domain, _, rest = (gpu.bus_id or "").partition(":")
    yield "BusId", f"{domain:0>8}:{rest}".upper()
    for row in (row for row in products() if row.name == gpu.name):
        yield "PciIds", f"{row.ids[0]}10DE 0"
        yield "CudaComputeCapability", row.compute_capability.replace(".", " ")
    for key, names in _names()["fields"].items():
        values = [_value(name, getattr(gpu, name)) for name in names.split()]
        if "" not in values and not (gpu.is_consumer and "ApplicationsClock" in key):
            yield key, " ".join(values)
    yield "BAR1MemoryInfo", f"{gpu.bar1_total_mib} 0 {gpu.bar1_used_mib}"
    reasons = sum(_names()["reasons"][name] for name in gpu.clock_event_reasons or ())
    yield "CurrentClocksThrottleReasons", reasons
    yield from _names()["always"].items()


def _value(name: str, value: object) -> str:
    """Return a field's value as NVML returns it; "" if the driver refuses it."""
    if value is None or value == "N/A":
        return ""
    words = _names()["words"].get(name)
    if words is not None:
        return str(words.get(value, ""))
    if name == "performance_state":
        return str(value)[1:]
    if isinstance(value, float):
        return str(round(1000 * value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name))


def _topology(recording: Recording) -> Iterator[Row]:
    matrix = GPU_TOPOLOGY_FACT.read(recording)
    levels = _names()["links"]
    for gpu in matrix.gpus:
        for other, word in matrix.links[gpu].items():
            if other in matrix.gpus:
                level = levels.get(word) or (4 + _number(word) if word.startswith("NV") else 0)
                yield _number(gpu), f"Topology.{_number(other)}", level
        if cpus := matrix.cpu_affinity[gpu]:
            yield _number(gpu), "CpuAffinity", cpus
        if nodes := matrix.numa_affinity[gpu]:
            yield _number(gpu), "MemoryAffinity", nodes


def _peers(recording: Recording) -> Iterator[Row]:
    for gpu, row in P2P_FACT.read(recording).status.items():
        for other, word in row.items():
            yield _number(gpu), f"P2PStatus.{_number(other)}", _names()["p2p"][word]


def _nvlinks(recording: Recording) -> Iterator[Row]:
    """Yield the number of links, and state, rate and errors of each."""
    for gpu in NVLINK_FACT.read(recording).gpus:
        model = model_of(gpu.name or "")
        idle = model.nvlink[1] if gpu.links is None and model and model.nvlink else 0
        yield gpu.index, "Field.91", len(gpu.links or ()) or idle
        if idle:
            yield gpu.index, "Field.165", 0
        for link in gpu.links or ():
            yield gpu.index, f"Field.165.{link.link}", int(link.active or False)
            yield gpu.index, f"Field.164.{link.link}", round(_MBPS * (link.speed_gb_s or 0))
            for field, count in ((161, link.replay_errors), (162, link.recovery_errors), (163, link.crc_errors)):
                yield gpu.index, f"Field.{field}.{link.link}", count or 0
