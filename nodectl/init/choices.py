"""The variables that make a host, each with its reason: general words here, those of the case from the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.init.draft import Choice

_HARDWARE = "What the hosts are made of, and what they must reach when they are measured: `nodectl profile show {}`."
_STACK = "What is installed: PyTorch, CUDA and the driver that they need. `nodectl profile list` shows the others."
_TUNING = (
    "Kernel, NCCL, NIC and GPU settings. stock changes nothing: measure first, then let `nodectl tune` propose and"
    " prove a tuning."
)
_TUNING_CHOSEN = "Kernel, NCCL, NIC and GPU settings: `nodectl profile show {}` gives each with its reason."
_DRIVER = "Whether nodectl may install and replace the NVIDIA driver (docs/provision.md)."
_REBOOT = (
    "A new driver may need a reboot. With true, or `nodectl provision --allow-reboot`, hosts reboot one at a time."
)


@dataclass(frozen=True, slots=True)
class Reasons:
    """Hold what is to be said of each choice beside the general words."""

    hardware: str = ""
    stack: str = ""
    tuning: str = ""
    driver: str = ""


def choices(profiles: Mapping[str, str], reasons: Reasons, driver: str) -> tuple[Choice, ...]:
    """The three profiles, and where there is a driver what is done with it; `driver` is keep, manage or empty."""
    tuning = _TUNING if profiles["tuning"] == "stock" else _TUNING_CHOSEN.format(profiles["tuning"])
    chosen = [
        Choice(
            "nodectl_hardware", profiles["hardware"], _joined(_HARDWARE.format(profiles["hardware"]), reasons.hardware)
        ),
        Choice("nodectl_stack", profiles["stack"], _joined(_STACK, reasons.stack)),
        Choice("nodectl_tuning", profiles["tuning"], _joined(tuning, reasons.tuning)),
    ]
    if driver:
        chosen.append(Choice("nodectl_driver", driver, _joined(_DRIVER, reasons.driver)))
        chosen.append(Choice("nodectl_allow_reboot", True, _REBOOT, open=True))
    return tuple(chosen)


def _joined(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
