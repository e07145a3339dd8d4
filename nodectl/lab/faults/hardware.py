"""Faults of a dressed host's GPUs, which stand in what was recorded of them: the two that the pages show."""

from __future__ import annotations

import re

from nodectl.errors import UsageError
from nodectl.lab.dress import RECORDED
from nodectl.lab.faults import Fault, Scene
from nodectl.lab.faults.system import file_fault

_SMI = f"{RECORDED}/nvidia-smi-q.out"


def _gpu(name: str, about: str, check: str, place: str, value: str) -> Fault:
    """Return a fault that puts `value` where `place` ends in the host's `nvidia-smi -q`."""

    def change(scene: Scene, text: str) -> str:
        changed, count = re.subn(rf"(?ms)\A({place})\S+", rf"\g<1>{value}", text)
        if not count:
            raise UsageError(
                f"{scene.host.name} has no hardware of its own that could fail",
                "dress the lab in a recording of NVIDIA GPUs for datacentres: `nodectl lab up --as dgx-a100`",
            )
        return changed

    return file_fault(name, about, (check,), _SMI, change, dressed=True)


FAULTS = (
    _gpu(
        "ecc-uncorrectable",
        "two errors that ECC could not correct since boot",
        "gpu_ecc_uncorrectable",
        # the third GPU's
        r"(?:.*?^GPU 0){3}.*?^ +Volatile$.*?^ +DRAM Uncorrectable +: ",
        "2",
    ),
    _gpu(
        "remap-failure",
        "a row could not be remapped",
        "gpu_remap_failure",
        # the last GPU's
        r".*^ +Remapping Failure Occurred +: ",
        "Yes",
    ),
)
