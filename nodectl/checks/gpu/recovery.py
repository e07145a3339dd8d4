"""What the driver itself says a GPU needs: nothing goes before that."""

from __future__ import annotations

from nodectl.checks.check import Subject
from nodectl.checks.gpu.rules import Fault, gpu_check, gpu_flag
from nodectl.facts.gpus import Gpu
from nodectl.model.status import Status

ORDER = 50

# what the driver's own recovery action asks for, from the mildest on
_RECOVERY = {
    "reset": ("reset GPU", "`nvidia-smi -r -i N` when nothing runs on it"),
    "gpu reset": ("reset GPU", "`nvidia-smi -r -i N` when nothing runs on it"),
    "reboot": ("reboot", "reboot the node"),
    "node reboot": ("reboot", "reboot the node"),
    "drain p2p": ("drain", "let peer traffic of this GPU end, then reset it"),
    "drain and reset": ("drain", "drain the node, then reset the GPU"),
}


_RESET = "`nvidia-smi -r -i N` when nothing runs on it"


@gpu_check(
    "gpu_recovery",
    "recovery_action",
    looks_at="nvidia-smi -q, of newer drivers",
    fires="the driver asks for a reset, a drain or a reboot",
    expected="None",
    remedy=_RESET,
)
def recovery(host: Subject, gpu: Gpu) -> Fault | None:
    asked = (gpu.recovery_action or "").strip()
    if asked.lower() in ("none", "n/a"):
        return None
    action, remedy = _RECOVERY.get(asked.lower(), ("drain", "see NVIDIA's documentation of GPU recovery actions"))
    return Fault(Status.FAILED, asked, action, remedy)


GPU_RESET_REQUIRED = gpu_flag(
    "gpu_reset_required",
    "reset_required",
    "a reset is required",
    fires="the driver says that the GPU needs a reset",
    expected="no reset required",
    remedy=_RESET,
    action="reset GPU",
)


GPU_DRAIN = gpu_flag(
    "gpu_drain",
    "drain_and_reset_recommended",
    "drain and reset are recommended",
    fires="the driver recommends to drain the node and reset the GPU",
    expected="no reset recommended",
    remedy=f"drain the node, then {_RESET}",
    action="drain",
)
