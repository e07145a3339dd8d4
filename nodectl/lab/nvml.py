"""The state of the simulated NVML: a composed host's GPUs and links as NVML's functions return them.

scripts/nvml/library.c answers from it, and describes its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodectl.common.paths import cache_dir
from nodectl.common.resources import table
from nodectl.facts.base import AbsentError
from nodectl.facts.gpus import GPU_TOPOLOGY_FACT, GPUS_FACT, NVLINK_FACT, P2P_FACT, Gpu
from nodectl.model.recording import Recording
from nodectl.profiles.gpus import model_of, products

LIBRARY = "libnvidia-ml.so.1"
# below a host's root
STATE = "var/lib/nodectl-lab/nvml"
Row = tuple[object, str, object]
_NAMES: Mapping[str, Any] = table(Path(__file__).with_suffix(".yml"))


def smi_folder() -> Path:
    """Return the cache that `make nvidia-smi` fills: the library, and VERSION/nvidia-smi of each version."""
    return cache_dir() / "nvidia-smi"


def programs() -> tuple[Path, ...]:
    """Return each version of nvidia-smi that is at hand with the library, the newest last."""
    return tuple(sorted(smi_folder().glob("*/nvidia-smi"))) if (smi_folder() / LIBRARY).is_file() else ()


def real_nvidia_smi(state: str) -> dict[str, tuple[bytes, int]]:
    """Return (content, mode) by path below a host's root: the newest nvidia-smi, the library, and its state."""
    return {
        "usr/local/bin/nvidia-smi": (programs()[-1].read_bytes(), 0o755),
        f"usr/lib/{LIBRARY}": ((smi_folder() / LIBRARY).read_bytes(), 0o755),
        STATE: (state.encode(), 0o644),
    }


def state_of(host: Recording) -> str:
    """Return the state in which nvidia-smi prints what the composed host's nvidia-smi printed."""
    gpus, matrix = GPUS_FACT.read(host), GPU_TOPOLOGY_FACT.read(host)
    major, minor = (gpus.cuda_version or "0.0").split(".")
    rows: list[Row] = [
        ("-", "DriverVersion", gpus.driver_version),
        ("-", "NVMLVersion", f"{major}.{gpus.driver_version}"),
    ]
    rows.append(("-", "CudaDriverVersion", 1000 * int(major) + 10 * int(minor)))
    rows += ((number, *pair) for number, gpu in enumerate(gpus.devices) for pair in _gpu(gpu))
    rows += _pairs("Topology", matrix.links, _NAMES["links"])
    rows += _pairs("P2PStatus", P2P_FACT.read(host).status, _NAMES["p2p"])
    rows += ((_number(gpu), "CpuAffinity", cpus) for gpu, cpus in matrix.cpu_affinity.items())
    rows += ((_number(gpu), "MemoryAffinity", nodes) for gpu, nodes in matrix.numa_affinity.items())
    with suppress(AbsentError):
        rows += _nvlinks(host)
    return "".join(f"{gpu} {key} {value}\n" for gpu, key, value in rows)


def _gpu(gpu: Gpu) -> Iterator[tuple[str, object]]:
    domain, _, rest = (gpu.bus_id or "").partition(":")
    yield "BusId", f"{domain:0>8}:{rest}".upper()
    for row in (row for row in products() if row.name == gpu.name):
        yield "PciIds", f"{row.ids[0]}10DE 0"
        yield "CudaComputeCapability", row.compute_capability.replace(".", " ")
    for key, names in _NAMES["fields"].items():
        values = [_value(name, getattr(gpu, name)) for name in names.split()]
        if "" not in values and not (gpu.is_consumer and "ApplicationsClock" in key):
            yield key, " ".join(values)
    yield "CurrentClocksThrottleReasons", sum(_NAMES["reasons"][name] for name in gpu.clock_event_reasons or ())
    yield from _NAMES["always"].items()


def _value(name: str, value: object) -> str:
    """Return a field's value as NVML returns it; "" if the driver refuses it."""
    words = _NAMES["words"].get(name)
    if words or value in (None, "N/A"):
        return str(words.get(value, "")) if words else ""
    if isinstance(value, float):
        return str(round(1000 * value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name))


def _pairs(key: str, cells: Mapping[str, Mapping[str, str]], words: Mapping[str, int]) -> Iterator[Row]:
    for gpu, row in cells.items():
        for other, word in row.items():
            yield _number(gpu), f"{key}.{_number(other)}", words[word] if word in words else 4 + _number(word)


def _nvlinks(host: Recording) -> Iterator[Row]:
    for gpu in NVLINK_FACT.read(host).gpus:
        model, links = model_of(gpu.name or ""), gpu.links or ()
        idle = model.nvlink[1] if gpu.links is None and model and model.nvlink else 0
        yield gpu.index, "Field.91", len(links) or idle
        yield gpu.index, "Field.165", int(bool(links))
        yield from ((gpu.index, "Field.164", round(1000 * (link.speed_gb_s or 0))) for link in links[:1])
