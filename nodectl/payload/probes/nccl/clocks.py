"""What GPUs (or processors) run at while something is measured on them."""

import threading
from pathlib import Path
from statistics import median
from typing import Dict, List, Sequence

from ...common import machine

COLUMNS = "index,clocks.sm,clocks.mem,temperature.gpu"
EVERY_S = 1.0
SMI_S = 10.0
_CPU_MHZ = "cpu MHz"


class Clocks:
    """Samples of these GPUs, or of the processors where there are none, from its making to `stop`."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = gpus
        self.samples: Dict[str, List[List[float]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Dict[str, Dict[str, float]]:
        """By GPU (or `cpu`): the median clocks, and the highest temperature."""
        self._over.set()
        self._thread.join(10)
        summaries = {}
        for name, samples in list(self.samples.items()):
            summaries[name] = {"mhz": median(sample[0] for sample in samples)}
            if len(samples[0]) > 2:
                summaries[name]["memory_mhz"] = median(sample[1] for sample in samples)
                summaries[name]["temperature_c"] = max(sample[2] for sample in samples)
        return summaries

    def _watch(self) -> None:
        # what a process does before it computes says nothing of its clocks
        while not self._over.wait(EVERY_S):
            for name, values in (gpu_sample(self.gpus) if self.gpus else cpu_sample()).items():
                self.samples.setdefault(name, []).append(values)


def gpu_sample(gpus: Sequence[int]) -> Dict[str, List[float]]:
    """The columns of each GPU by its index; nothing where the driver does not tell."""
    asked = "-i", ",".join(map(str, gpus))
    rows = machine.smi("--query-gpu=" + COLUMNS, "--format=csv,noheader,nounits", *asked, timeout_s=SMI_S) or ""
    values = {}
    for line in rows.splitlines():
        index, *cells = [cell.strip() for cell in line.split(",")]
        try:
            values[index] = [float(cell) for cell in cells]
        except ValueError:
            continue
    return values


def cpu_sample() -> Dict[str, List[float]]:
    """The mean over all processors, where the kernel tells it."""
    lines = machine.text(Path("/proc/cpuinfo")).splitlines()
    values = [float(line.partition(":")[2]) for line in lines if line.startswith(_CPU_MHZ)]
    return {"cpu": [round(sum(values) / len(values), 1)]} if values else {}
