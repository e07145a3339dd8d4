"""Copies within a GPU, between GPUs, and between a GPU and the host's memory: GB/s, every byte checked."""

import time
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from .cuda import Cuda, is_out_of_memory

MIB = 1 << 20
# of an array on a GPU
MOST_BYTES = 4096 * MIB
LEAST_BYTES = 16 * MIB
FREE_PART = 4
_TRIAL_S = 0.05
_CHECK = 256 * MIB


class Rates(NamedTuple):
    """GB/s of each run, and bytes that were not what they should be after it."""

    rates: List[float]
    wrong: int
    size_bytes: int
    passes: int
    began: float
    ended: float


def pattern(torch: Any, device: Any, size: int, seed: int) -> Any:
    """Bytes that differ from seed to seed and from place to place; a quarter of them zero at most."""
    integers = torch.arange(size // 4, dtype=torch.int32, device=device)
    integers.mul_(-1640531527).add_(seed * 40503 + 1)
    return integers.view(torch.uint8)


def differing(torch: Any, one: Any, other: Any) -> int:
    """Bytes that differ, counted on `one`'s device a piece at a time."""
    wrong = 0
    for start in range(0, one.numel(), _CHECK):
        here, there = one[start : start + _CHECK], other[start : start + _CHECK]
        wrong += int((here != there.to(here.device)).sum().item())
    return wrong


def halving(size: int, work: Callable[[int], Any]) -> Any:
    """`work` at this size, at half of it while memory does not suffice."""
    while True:
        try:
            return work(size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size // 2 < LEAST_BYTES:
                raise
        size //= 2


def size_on(cuda: Cuda, *gpus: int) -> int:
    """Return the bytes of one of two arrays on each of these GPUs: a part of what is free."""
    free = min(cuda.free_bytes(gpu) for gpu in gpus) // FREE_PART
    return max(LEAST_BYTES, min(MOST_BYTES, free) // MIB * MIB)


def run(
    work: Callable[[], Any],
    sync: Callable[[], None],
    moved: int,
    seconds: float,
    runs: int,
    ready: Callable[[], None] = lambda: None,
) -> Rates:
    """Time the runs, each of which moves so many bytes in a pass; what is wrong then is the caller's to count."""
    passes = _passes(work, sync, seconds)
    rates, first, ended = [], 0.0, 0.0
    for _ in range(runs):
        ready()
        sync()
        began = time.perf_counter()
        first = first or time.monotonic()
        for _ in range(passes):
            work()
        sync()
        rates.append(moved * passes / (time.perf_counter() - began) / 1e9)
        ended = time.monotonic()
    return Rates(rates, 0, moved, passes, first, ended)


def _passes(work: Callable[[], Any], sync: Callable[[], None], seconds: float) -> int:
    passes = 1
    while True:
        sync()
        began = time.perf_counter()
        for _ in range(passes):
            work()
        sync()
        took = time.perf_counter() - began
        if took >= seconds / 8 or passes >= 1 << 20:
            return max(1, round(passes * seconds / max(took, 1e-9)))
        passes *= 4


def within(cuda: Cuda, gpu: int, size: int, seconds: float, runs: int, ready: Callable[[], None]) -> Tuple[str, Rates]:
    """(how, GB/s read and written): the driver's copy or a kernel's, whichever is faster."""
    torch, device = cuda.torch, cuda.device(gpu)
    source, target = pattern(torch, device, size, gpu + 1), torch.zeros(size, dtype=torch.uint8, device=device)
    views = source.view(torch.int64), target.view(torch.int64)
    sync = partial(cuda.sync, gpu)
    ways: Dict[str, Callable[[], Any]] = {
        "memcpy": lambda: target.copy_(source, non_blocking=True),
        "kernel": lambda: torch.bitwise_not(views[0], out=views[1]),
    }
    how = max(ways, key=lambda name: run(ways[name], sync, 2 * size, min(_TRIAL_S, seconds), 1).rates[0])
    target.zero_()
    rates = run(ways[how], sync, 2 * size, seconds, runs, ready)
    expected = source if how == "memcpy" else torch.bitwise_not(source)
    return how, rates._replace(wrong=differing(torch, target, expected), size_bytes=size)


class Pair:
    """Copies from one GPU to another, as CUDA does it for them."""

    def __init__(self, cuda: Cuda, source: int, target: int, size: int) -> None:
        self.cuda, self.gpus, self.size = cuda, (source, target), size
        torch = cuda.torch
        self.source = pattern(torch, cuda.device(source), size, source + 1)
        self.target = torch.zeros(size, dtype=torch.uint8, device=cuda.device(target))
        self.out, self.into = cuda.stream(source), cuda.stream(target)

    def copy(self) -> None:
        """Copy once, by streams of its own on both sides: the other direction must not wait for this one."""
        stream = self.cuda.torch.cuda.stream
        with stream(self.into), stream(self.out):
            self.target.copy_(self.source, non_blocking=True)

    def wrong(self) -> int:
        """Bytes at the target that are not the source's, by a pattern made again over there."""
        torch, (source, target) = self.cuda.torch, self.gpus
        return differing(torch, self.target, pattern(torch, self.cuda.device(target), self.size, source + 1))


def between(cuda: Cuda, pairs: List[Pair], seconds: float, runs: int) -> Rates:
    """GB/s of all these at once: one for one direction, two for both."""
    gpus = sorted({gpu for pair in pairs for gpu in pair.gpus})

    def work() -> None:
        for pair in pairs:
            pair.copy()

    for pair in pairs:
        pair.target.zero_()
    size = pairs[0].size
    rates = run(work, partial(cuda.sync, *gpus), size * len(pairs), seconds, runs)
    return rates._replace(wrong=sum(pair.wrong() for pair in pairs), size_bytes=size)


def with_host(cuda: Cuda, gpu: int, host: Any, to_gpu: bool, seconds: float, runs: int) -> Rates:
    """GB/s of one direction between a GPU and this pinned memory."""
    torch, device, size = cuda.torch, cuda.device(gpu), host.numel()
    on_gpu = torch.zeros(size, dtype=torch.uint8, device=device)
    source, target = (host, on_gpu) if to_gpu else (on_gpu, host)
    expected = pattern(torch, device, size, gpu + 3)
    source.copy_(expected)
    target.zero_()
    rates = run(partial(target.copy_, source, non_blocking=True), partial(cuda.sync, gpu), size, seconds, runs)
    return rates._replace(wrong=differing(torch, expected, target))
