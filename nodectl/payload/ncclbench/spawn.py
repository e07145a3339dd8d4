"""The ranks of this host: a process each, ended together, and watched while they run."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Sequence, Tuple

QUERY = "index,clocks.sm,clocks.mem,temperature.gpu"
EVERY_S = 1.0
_PR_SET_PDEATHSIG = 1
_CPU_MHZ = "cpu MHz"


def die_with_parent() -> None:
    """A rank whose host's program is gone must not go on."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(count: int) -> Tuple[int, str]:
    """This program once for each rank; the first that fails ends the others. Its status, and what ended it if a signal.

    A rank that fails by itself says why.
    """
    children = [subprocess.Popen([sys.executable, *sys.argv, "--local-rank", str(i)]) for i in range(count)]
    told = []

    def stop(*_: Any) -> None:
        for child in children:
            child.kill()

    def end(*_: Any) -> None:
        told.append("ended from outside")
        stop()

    signal.signal(signal.SIGTERM, end)
    try:
        while True:
            states = [child.poll() for child in children]
            failed = [(number, state) for number, state in enumerate(states) if state]
            if failed or None not in states:
                break
            time.sleep(0.05)
    finally:
        stop()
    number, state = failed[0] if failed else (0, 0)
    if state >= 0 or told:
        return abs(state), ""
    return abs(state), "local rank %d was ended by %s" % (number, signal.Signals(-state).name)


class Clocks:
    """What GPUs (or processors) run at while something is measured."""

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
        found = {}
        for name, samples in list(self.samples.items()):
            told = {"mhz": median(each[0] for each in samples)}
            if len(samples[0]) > 2:
                told["memory_mhz"] = median(each[1] for each in samples)
                told["temperature_c"] = max(each[2] for each in samples)
            found[name] = told
        return found

    def _watch(self) -> None:
        # what a process does before it computes says nothing of its clocks
        while not self._over.wait(EVERY_S):
            for name, values in (gpu_sample(self.gpus) if self.gpus else cpu_sample()).items():
                self.samples.setdefault(name, []).append(values)


def gpu_sample(gpus: Sequence[int]) -> Dict[str, List[float]]:
    """Nothing where the driver does not tell."""
    argv = ["nvidia-smi", "--query-gpu=" + QUERY, "--format=csv,noheader,nounits", "-i", ",".join(map(str, gpus))]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        index, *values = [each.strip() for each in line.split(",")]
        try:
            found[index] = [float(each) for each in values]
        except ValueError:
            continue
    return found


def cpu_sample() -> Dict[str, List[float]]:
    """The mean over all processors, where the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    values = [float(line.partition(":")[2]) for line in lines if line.startswith(_CPU_MHZ)]
    return {"cpu": [round(sum(values) / len(values), 1)]} if values else {}
