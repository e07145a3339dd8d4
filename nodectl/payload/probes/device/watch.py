"""Clocks, temperature, power and throttle reasons of the GPUs: nvidia-smi, over and over while something runs."""

import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ...common.machine import smi
from .hardware import value_of

_COLUMNS = (
    *("index", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"),
    *("pcie.link.gen.current", "pcie.link.width.current"),
)
# drivers before 535 have the older name only
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_PAUSE_S = 0.05
# NVML's bits; idle (0x1) is no reason while something runs
_BITS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Sample(NamedTuple):
    """One GPU at one moment of the monotonic clock."""

    at: float
    values: Dict[str, Optional[float]]
    reasons: Optional[int]


class Watch:
    """Asks from `start` to `stop`; `between` sums up a stretch of time."""

    def __init__(self) -> None:
        self._samples: Dict[int, List[Sample]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Watch":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()

    def between(self, gpu: int, began: float, ended: float) -> Dict[str, Any]:
        """Return what was seen of this GPU; `samples` 0 where nothing was."""
        return summary([sample for sample in list(self._samples.get(gpu, [])) if began <= sample.at <= ended])

    def _run(self) -> None:
        names = list(_REASONS)
        while names and not self._ended.is_set():
            asked = time.monotonic()
            query = "--query-gpu=" + ",".join([*_COLUMNS, names[0]])
            rows = smi(query, "--format=csv,noheader,nounits")
            if rows is None:  # no such column, or no nvidia-smi at all
                names.pop(0)
                continue
            at = (asked + time.monotonic()) / 2
            for line in rows.splitlines():
                self._add(line, at)
            self._ended.wait(_PAUSE_S)

    def _add(self, line: str, at: float) -> None:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_COLUMNS) + 1 and cells[0].isdigit():
            values = {name: value_of(cells[at]) for at, name in enumerate(_COLUMNS)}
            self._samples.setdefault(int(cells[0]), []).append(Sample(at, values, _mask(cells[-1])))


def summary(samples: Sequence[Sample]) -> Dict[str, Any]:
    """The lowest and the usual clock, the highest temperature and power, the best link, every reason that was given."""

    def known(name: str) -> List[float]:
        return sorted(value for sample in samples for value in [sample.values.get(name)] if value is not None)

    clocks, memory = known("clocks.sm"), known("clocks.mem")
    masks = [sample.reasons for sample in samples if sample.reasons is not None]
    return {
        "samples": len(samples),
        "clock_mhz": _middle(clocks),
        "clock_min_mhz": clocks[0] if clocks else None,
        "memory_clock_mhz": _middle(memory),
        "temperature_c": max(known("temperature.gpu"), default=None),
        "power_w": max(known("power.draw"), default=None),
        "pcie_gen_now": max(known("pcie.link.gen.current"), default=None),
        "pcie_width_now": max(known("pcie.link.width.current"), default=None),
        "throttled": sorted({name for bit, name in _BITS.items() for mask in masks if mask & bit}) if masks else None,
    }


def _middle(values: List[float]) -> Optional[float]:
    return values[len(values) // 2] if values else None


def _mask(cell: str) -> Optional[int]:
    try:
        return int(cell, 16)
    except ValueError:
        return None
