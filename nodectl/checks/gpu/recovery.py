"""What the driver itself says a GPU needs: nothing goes before that."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import Check, Subject
from nodectl.checks.gpu.rules import Fault, Rule, flag, judged
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu
from nodectl.model.status import Status

# what the driver's own recovery action asks for, from the mildest on
_RECOVERY = {
    "reset": ("reset GPU", "`nvidia-smi -r -i N` when nothing runs on it"),
    "gpu reset": ("reset GPU", "`nvidia-smi -r -i N` when nothing runs on it"),
    "reboot": ("reboot", "reboot the node"),
    "node reboot": ("reboot", "reboot the node"),
    "drain p2p": ("drain", "let peer traffic of this GPU end, then reset it"),
    "drain and reset": ("drain", "drain the node, then reset the GPU"),
}


def _recovery(host: Subject, gpu: Gpu) -> Fault | None:
    asked = (gpu.recovery_action or "").strip()
    if asked.lower() in ("none", "n/a"):
        return None
    action, remedy = _RECOVERY.get(asked.lower(), ("drain", "see NVIDIA's documentation of GPU recovery actions"))
    return Fault(Status.FAILED, asked, action, remedy)


_RESET = "`nvidia-smi -r -i N` when nothing runs on it"
RULES = (
    Rule(
        "gpu_recovery", "recovery_action", "nvidia-smi -q, of newer drivers",
        "the driver asks for a reset, a drain or a reboot", "None", _RESET, _recovery,
    ),
    flag(
        "gpu_reset_required", "reset_required", "the driver says that the GPU needs a reset", "no reset required",
        "a reset is required", _RESET, "reset GPU",
    ),
    flag(
        "gpu_drain", "drain_and_reset_recommended", "the driver recommends to drain the node and reset the GPU",
        "no reset recommended", "drain and reset are recommended", f"drain the node, then {_RESET}", "drain",
    ),
)  # fmt: skip


def recovery(host: Subject) -> Iterator[Finding]:
    """Its recovery action, and the older words for the same."""
    yield from judged(host, RULES)


CHECKS: tuple[Check, ...] = (recovery,)
ABOUT = tuple(rule.about for rule in RULES)
