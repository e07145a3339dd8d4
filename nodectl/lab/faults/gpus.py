"""Recorded faults of GPUs: gone, sick, hot, throttled, set otherwise than they should be."""

from __future__ import annotations

from nodectl.lab.faults.base import Fault
from nodectl.lab.faults.edits import both, bus_of, gpu, logged, parts_of, says, text_of, with_text
from nodectl.lab.faults.recorded import CannotEditError, Edit, Output, Outputs, fault


def _without(number: int) -> Edit:
    """The driver knows one GPU less: it is in no table."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        parts = parts_of(text_of(outputs, "nvidia-smi-q"))
        if number + 1 >= len(parts):
            raise CannotEditError(f"the recording has no GPU {number}")
        gone, count = parts.pop(number + 1), len(parts) - 1
        bus = gone.split()[1]
        head = parts[0].replace(f": {count + 1}\n", f": {count}\n")
        changed = with_text(outputs, "nvidia-smi-q", "".join([head, *parts[1:]]))
        rows = text_of(outputs, "nvidia-smi-query").splitlines(keepends=True)
        kept = [row for row in rows if bus not in row]
        return changed | with_text(outputs, "nvidia-smi-query", "".join(kept))

    return edit


def _lost(number: int) -> Edit:
    """nvidia-smi names a GPU that it cannot reach any more, and fails."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        bus = bus_of(outputs, number)
        said = f"Unable to determine the device handle for GPU0000:{bus[5:].upper()}.0: Unknown Error\n"
        changed = _without(number)(outputs)
        return {key: Output(f"{output.stdout}{said}", "", 255) for key, output in changed.items()}

    return edit


def _fell(outputs: Outputs) -> str:
    return f"NVRM: GPU {bus_of(outputs, 6)}.0: GPU has fallen off the bus."


def _mixed(outputs: Outputs) -> dict[str, Output]:
    """One card with half the memory among the others."""
    changed = gpu(2, ("FB Memory Usage/Total", "40960 MiB"))(outputs)
    parts = parts_of(changed["nvidia-smi-q"].stdout)
    name = parts[3].partition("Product Name")[2].partition(":")[2].splitlines()[0].strip()
    other = name.replace("80GB", "40GB") if "80GB" in name else f"{name} D"
    parts[3] = parts[3].replace(f": {name}\n", f": {other}\n", 1)
    return with_text(outputs, "nvidia-smi-q", "".join(parts))


_UNREACHABLE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105\n"
_SMI = ("nvidia-smi-q", "nvidia-smi-query", "nvidia-smi-topo", "nvidia-smi-p2p", "nvidia-smi-version")
_LINKS = ("nvidia-smi-nvlink", "nvidia-smi-nvlink-errors")


FAULTS: tuple[Fault, ...] = (
    fault("gpu-missing", "the driver shows one GPU less", ("gpus",), _without(5)),
    fault("gpu-lost", "nvidia-smi cannot reach a GPU that it names", ("gpu_lost",), _lost(3)),
    fault(
        "gpu-fallen",
        "the kernel says that a GPU has fallen off the bus",
        ("xid",),
        logged(_fell),
    ),
    fault("gpu-other", "one GPU has half the memory", ("gpu_model",), _mixed),
    fault(
        "gpu-hang",
        "nvidia-smi does not end in time",
        ("gpus",),
        both(*(says(key, exit_status=124) for key in (*_SMI[:2],))),
    ),
    fault(
        "driver-dead",
        "nvidia-smi cannot talk to the driver",
        ("driver_loaded",),
        both(*(says(key, _UNREACHABLE, exit_status=9) for key in _SMI)),
    ),
    fault(
        "driver-mismatch",
        "driver and library have different versions",
        ("driver_library",),
        both(*(says(key, _MISMATCH, exit_status=18) for key in (*_SMI, *_LINKS))),
    ),
)
