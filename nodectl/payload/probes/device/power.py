"""Load the GPUs of this host in steps, 1, 2, … all, then all on and off together: power, clocks, 12 V, who is lost."""

import os
import re
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...common import machine
from . import devices, hardware, matmul
from .cuda import Cuda

HWMON = Path("/sys/class/hwmon")
_REST_S, _PULSE_S = 0.5, 0.2
# long enough that a GPU is not idle between two, short enough to stop in time
_LEAST_S, _AHEAD = 0.002, 4
_RAIL = re.compile(r"12 ?V(?!SB)", re.IGNORECASE)
_BY_BMC = re.compile(r"^([^|\n]*12 ?V[^|\n]*?)\s*\|.*\|\s*([\d.]+) Volts", re.IGNORECASE | re.MULTILINE)
# what a sensor without its divider tells is no rail
_VOLTS = (8.0, 15.0)
_IPMI = ("ipmitool", "sdr", "type", "Voltage")
_IPMI_S = 5.0


class Rails:
    """Reads the 12 V rails, by the board's sensors and by the BMC where this login may; readings by name."""

    def __init__(self) -> None:
        self._readings: List[Tuple[float, str, float]] = []
        self._ended = threading.Event()
        self._files = list(_sensors())
        for work in (self._by_board, self._by_bmc):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """End reading."""
        self._ended.set()

    def between(self, began: float, ended: float) -> Dict[str, List[float]]:
        """Return the lowest and the highest volts of each rail in this time."""
        seen: Dict[str, List[float]] = {}
        for at, name, volts in list(self._readings):
            if began <= at <= ended:
                low, high = seen.get(name, [volts, volts])
                seen[name] = [min(low, volts), max(high, volts)]
        return seen

    def _note(self, name: str, volts: float) -> None:
        if _VOLTS[0] <= volts <= _VOLTS[1]:
            self._readings.append((time.monotonic(), name, volts))

    def _by_board(self) -> None:
        while self._files and not self._ended.wait(0.02):
            for name, path in self._files:
                self._note(name, (machine.number(path) or 0) / 1000)

    def _by_bmc(self) -> None:
        told = True
        while told and not self._ended.is_set():
            rows = _BY_BMC.findall(machine.printed(_IPMI, _IPMI_S) or "")
            told = bool(rows)
            for name, volts in rows:
                self._note("BMC " + name.strip(), float(volts))


def _sensors() -> List[Tuple[str, Path]]:
    labels = sorted(HWMON.glob("hwmon*/in*_label"))
    named = [(machine.text(label), label) for label in labels]
    return [
        (name, label.with_name(label.name.replace("_label", "_input"))) for name, label in named if _RAIL.search(name)
    ]


class Load:
    """Products on one GPU, each some milliseconds long."""

    def __init__(self, cuda: Cuda, gpu: int) -> None:
        self.cuda, self.gpu = cuda, gpu
        cuda.torch.cuda.set_device(gpu)
        name = next((name for name in ("bf16", "fp16", "fp32") if not matmul.lacks(cuda, name, gpu)), "fp32")
        memory = cuda.free_bytes(gpu) // 2
        self._bench = matmul.Bench(cuda, name, gpu, memory)
        for shape in (shape for shape in matmul.SHAPES if min(shape) == max(shape)):
            if 3 * 4 * shape[0] ** 2 > memory:
                break
            self._given = self._bench.operands(matmul.Choice(shape, "nn"), gpu)
            self._bench.product(self._given)
            if self._bench.takes_s([self._given], 2, 1.0) >= _LEAST_S:
                break

    def go(self) -> None:
        """Give the GPU some products; does not wait for them."""
        for _ in range(_AHEAD):
            self._bench.product(self._given)


def loaded(loads: Sequence[Load], seconds: float, *, pulsed: bool) -> Optional[Tuple[int, str]]:
    """Load these GPUs together, `pulsed` on and off; return the GPU that failed, and its words."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        rest = time.monotonic() + min(_PULSE_S, seconds / 4) if pulsed else until
        while time.monotonic() < rest:
            for work in ("go", "wait"):
                for load in loads:
                    try:
                        load.go() if work == "go" else load.cuda.sync(load.gpu)
                    except RuntimeError as error:
                        return load.gpu, str(error).splitlines()[0]
        if pulsed:
            time.sleep(min(_PULSE_S, seconds / 4))
    return None


def lost(known: int) -> str:
    """Return how nvidia-smi, which knew so many GPUs before, says that one is gone; empty where none is."""
    left = known
    for _ in range(2):  # the first time it may only have been slow
        left = len(hardware.cards())
        if left >= known:
            break
    return "nvidia-smi shows %d of %d GPUs" % (left, known) if left < known else ""


def work(device: devices.Device) -> None:
    """Step by step: each is told before it begins, since a host may not live to tell its end."""
    cuda, options = Cuda(device.torch), device.options
    loads = [Load(cuda, gpu) for gpu in range(cuda.count())]
    known, rails = len(hardware.cards()), Rails()
    try:
        for cards, pulsed in [*((cards, False) for cards in range(1, len(loads) + 1)), (len(loads), True)]:
            time.sleep(min(_REST_S, options.seconds))
            device.say(event="step", cards=cards, pulsed=pulsed)
            began = time.monotonic()
            failed = loaded(loads[:cards], options.seconds * options.runs, pulsed=pulsed)
            at: Dict[str, Any] = {"cards": cards, "pulsed": pulsed, "began": began, "ended": time.monotonic()}
            for gpu in range(cards):
                device.say(event="loaded", gpu=gpu, **at)
            device.say(event="stepped", rails=rails.between(began, at["ended"]), **at)
            which, text = failed or (None, lost(known))
            if text:
                device.say(event="lost", gpu=which, text=text, **at)
                return
    finally:
        rails.stop()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return devices.main(argv, work, on_cpu=False, one_process=True)
