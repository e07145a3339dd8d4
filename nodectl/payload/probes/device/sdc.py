"""The same seeded computation on every GPU of this host, or on each of its processors: digests of what comes out."""

import argparse
import ctypes
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import devices, matmul
from .cuda import Cuda

# splitmix64's constants, as signed numbers
_STEP, _MIX = -7046029254386353131, -4658895280553007687
_ROUNDS = 4


class Extent(NamedTuple):
    """How much is computed: the side of the matrices, the bytes that are moved."""

    side: int
    moved_bytes: int


ON_GPU = Extent(4096, 512 << 20)
ON_CPU = Extent(256, 8 << 20)


class Computation:
    """The operations on one device; each gives a tensor that must have the same bits every time."""

    def __init__(self, torch: Any, device: Any, seed: int, extent: Extent, precisions: List[str]) -> None:
        self.torch, self.device, self.extent = torch, device, extent
        side = extent.side
        self.words = self._mixed(side * side, seed)
        self.numbers = self._fractions(self.words).reshape(side, side)
        self.others = self._fractions(self._mixed(side * side, seed + 1)).reshape(side, side)
        self.pattern = self._mixed(extent.moved_bytes // 8, seed + 2)
        self.room = torch.empty_like(self.pattern)
        self.operations: Dict[str, Callable[[], Any]] = {
            "integers": lambda: self._mix(self.words.clone()),
            "memory": self._moved,
            "functions": self._functions,
        }
        for name in precisions:
            self.operations["product %s" % name] = self._product(name)

    def results(self) -> Dict[str, Any]:
        """Return what each operation gives, by its name."""
        return {name: work() for name, work in self.operations.items()}

    def _mixed(self, count: int, seed: int) -> Any:
        """Integers of all bits, by arithmetic that wraps around alike everywhere."""
        integers = self.torch.arange(count, dtype=self.torch.int64, device=self.device)
        return self._mix(integers.mul_(_STEP).add_(seed * 1000003))

    def _mix(self, integers: Any) -> Any:
        for _ in range(_ROUNDS):
            integers ^= integers >> 29
            integers *= _MIX
        return integers

    def _fractions(self, integers: Any) -> Any:
        """-1 to 1, each exact in 24 bits."""
        return (integers >> 40).to(self.torch.float32).div_(1 << 23)

    def _moved(self) -> Any:
        """There and back, each time reversed by halves; what arrives is added up per stretch."""
        here, there = self.pattern, self.room
        half = here.numel() // 2
        there[:half].copy_(here[half:])
        there[half:].copy_(here[:half])
        return there.reshape(-1, 256).sum(dim=1)

    def _functions(self) -> Any:
        x = self.numbers
        return x.sin().add_(x.abs().add(1.0).log_()).mul_(x.exp()).add_(x.abs().sqrt_())

    def _product(self, name: str) -> Callable[[], Any]:
        torch = self.torch
        if name in ("fp32", "tf32"):

            def full() -> Any:
                torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
                return self.numbers @ self.others

            return full
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
        a, b = self.numbers.to(dtype), self.others.to(dtype)
        return lambda: a @ b


def digest(result: Any) -> str:
    """64 bits of the SHA-256 of all its bytes, in hexadecimal."""
    here = result.contiguous().cpu()
    size = here.numel() * here.element_size()
    return hashlib.sha256(ctypes.string_at(here.data_ptr(), size)).hexdigest()[:16]


class Rounds:
    """Results of many rounds, compared on the device itself with those of the first: only that one is hashed.

    The processor hashes the last one as well, so that a device that compares wrongly is found, too.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.counts: Dict[str, Dict[str, int]] = {name: {} for name in computation.operations}
        self.first: Dict[str, Any] = {}
        self.digests: Dict[str, str] = {}
        self.last: Dict[str, Any] = {}

    def go(self) -> None:
        """One round of all operations."""
        self.last = self.computation.results()
        if not self.first:
            self.first = self.last
            self.digests = {name: digest(result) for name, result in self.first.items()}
        changed = self.changed()
        for name, result in self.last.items():
            self.count(name, different(self.digests[name], digest(result)) if name in changed else self.digests[name])

    def changed(self) -> List[str]:
        """Return the operations whose last result has other bits than the first; the device is waited for once."""
        flags = [
            (bits(self.computation.torch, result) != self.first_bits(name)).any() for name, result in self.last.items()
        ]
        differs = self.computation.torch.stack(flags).tolist()
        return [name for number, name in enumerate(self.last) if differs[number]]

    def first_bits(self, name: str) -> Any:
        """Return the bits of the operation's first result."""
        return bits(self.computation.torch, self.first[name])

    def end(self) -> None:
        """Look at the last round once more, by the processor."""
        changed = self.changed()
        for name, result in self.last.items():
            value = digest(result)
            if name not in changed and value != self.digests[name]:
                self.count(name, value)

    def count(self, name: str, value: str) -> None:
        """Count one result under its digest."""
        self.counts[name][value] = self.counts[name].get(value, 0) + 1


def different(first: str, value: str) -> str:
    """Return the name of a result that the device found to differ, also where the processor reads the same from it."""
    return value if value != first else "%s, compared as different" % value


def bits(torch: Any, result: Any) -> Any:
    """Return it as whole numbers: what is no number differs from itself, and the two zeros do not."""
    return result.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[result.element_size()])


def repeated(computation: Computation, times: int, seconds: float) -> Dict[str, Dict[str, int]]:
    """How often each digest came out of each operation: `times` times, each time over and over for `seconds`."""
    rounds = Rounds(computation)
    for _ in range(times):
        until = None
        while until is None or time.monotonic() < until:
            rounds.go()
            # what the first round takes more, for it is hashed, is no time of the device
            until = until or time.monotonic() + seconds
    rounds.end()
    return rounds.counts


# a thread each, so that every processor computes by itself and always in the same order; before torch is imported
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["MKL_CBWR"] = "AUTO,STRICT"

# fp8 is left to gemm: it has no product that all torch versions call alike
PRODUCTS = ("bf16", "fp16", "tf32", "fp32")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measure`."""
    parser.add_argument("--seed", type=int, default=1)


def work(device: devices.Device) -> None:
    """Compute on a GPU, or on every processor that may be used, all at once."""
    if device.gpu is not None:
        device.ready()
        device.say(**computed(device), gpu=device.gpu)
        return
    cpus = sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(len(cpus)) as pool:
        for event in pool.map(lambda cpu: on_processor(device, cpu), cpus):
            device.say(**event)


def on_processor(device: devices.Device, cpu: int) -> Dict[str, Any]:
    """Compute in a thread that stays on one processor."""
    os.sched_setaffinity(threading.get_native_id(), {cpu})
    device.torch.set_num_threads(1)
    return {**computed(device), "gpu": None, "cpu": cpu}


def computed(device: devices.Device) -> Dict[str, Any]:
    """Return the digests of all repetitions."""
    options, cuda = device.options, Cuda(device.torch)
    products = [name for name in PRODUCTS if not matmul.lacks(cuda, name, device.gpu)]
    extent = ON_CPU if device.gpu is None else ON_GPU
    began = time.monotonic()
    computation = Computation(device.torch, cuda.device(device.gpu), options.seed, extent, products)
    digests = repeated(computation, options.runs, options.seconds)
    return {"event": "computed", "digests": digests, "began": began, "ended": time.monotonic()}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=True, arguments=arguments)
