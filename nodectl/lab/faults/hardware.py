"""Faults of a dressed host's GPUs: lines of the simulated NVML's state, or edits of a recorded `nvidia-smi -q`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.common.resources import table
from nodectl.errors import UsageError
from nodectl.lab.dress import RECORDED
from nodectl.lab.faults import Fault, Scene
from nodectl.lab.faults.system import file_fault
from nodectl.lab.nvml import STATE

_SMI = f"{RECORDED}/nvidia-smi-q.out"


def _gpu(
    name: str, about: str, check: str, needs: str, lines: Sequence[str], place: str = "(?!)", value: str = ""
) -> Fault:
    """Return a fault of the last GPU: `lines` in front of the state; without a state, `value` in `nvidia-smi -q`."""

    def front(scene: Scene, text: str) -> str:
        gpus = re.findall(rf"(?m)^(\d+) {re.escape(needs)} ", text)
        if not gpus:
            raise _cannot(scene)
        return "".join(f"{gpus[-1]} {line}\n" for line in lines)

    def change(scene: Scene, text: str) -> str:
        changed, count = re.subn(rf"(?ms)\A({place})\S+", rf"\g<1>{value}", text)
        if not count:
            raise _cannot(scene)
        return changed

    recorded = file_fault(name, about, (check,), _SMI, change, dressed=True)

    def happens(scene: Scene, undo: str) -> None:
        if not _rewrite(scene.root / STATE, lambda text: front(scene, text) + text):
            recorded.happens(scene, undo)

    def heal(scene: Scene, undo: str) -> None:
        # what was set since then stays
        if not _rewrite(scene.root / STATE, lambda text: text.replace(front(scene, text), "", 1)):
            recorded.heal(scene, undo)

    return replace(recorded, happens=happens, heal=heal, simulated=not value)


def _cannot(scene: Scene) -> UsageError:
    return UsageError(
        f"{scene.host.name} has no hardware of its own that could fail so",
        "after `make nvidia-smi` in a checkout, `nodectl lab up --as '8 x h100-80gb-hbm3'` has all of these faults; "
        "`--as dgx-a100` has ecc-uncorrectable and remap-failure",
    )


def _rewrite(state: Path, change: Callable[[str], str]) -> bool:
    if not state.exists():
        return False
    draft = state.with_name("nvml-draft")
    draft.write_text(change(state.read_text("utf-8")), encoding="utf-8")
    draft.replace(state)
    return True


FAULTS = tuple(_gpu(name, **row) for name, row in table(Path(__file__).with_suffix(".yml")).items())
