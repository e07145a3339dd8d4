"""All kinds of faults by their names."""

from __future__ import annotations

from nodectl.lab.faults import fabric, gpu_state, gpus, kernel, keys, link, log, storage, system
from nodectl.lab.faults.base import Fault

_MODULES = (link, keys, storage, system, gpus, gpu_state, fabric, log, kernel)
FAULTS: dict[str, Fault] = {fault.name: fault for module in _MODULES for fault in module.FAULTS}
