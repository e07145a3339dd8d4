"""One host's ranks of a collectives measurement: times every repetition and checks every result.

JSON lines; Python 3.8, the standard library and torch. It ends when one of its ranks fails.
"""

import argparse
import ctypes
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional

ITEM_BYTES = 4
# small numbers that float32 sums exactly, so that a result is right or wrong and never nearly right
PATTERN = 13
MAX_ITERATIONS = 1000
DESTINATION = 100
PEER_WORDS = ("peer", "Connection", "connection", "timed out", "Timed out", "timeout", "ncclRemoteError")
UNSUPPORTED_WORDS = ("not implemented", "not support", "unsupported", "Unsupported", "no backend")


def say(**event: Any) -> None:
    # one write a line: lines of several ranks share the pipe
    os.write(1, (json.dumps(event) + "\n").encode())


class Case(NamedTuple):
    """One collective at one size: `given` goes into `data` before each run, `result` must equal `expected` after it."""

    data: Any
    given: Any
    result: Any
    expected: Any
    run: Callable[[], Any]

    @property
    def size_bytes(self) -> int:
        """The larger of the two buffers: what nccl-tests calls the size."""
        count: int = max(self.data.numel(), self.result.numel())
        return count * ITEM_BYTES

    def fill(self) -> None:
        self.data.copy_(self.given)

    def wrong(self) -> int:
        return int((self.result != self.expected).sum().item())


class Ranks:
    """This rank among the others; builds the cases."""

    def __init__(self, options: argparse.Namespace, rank: int, torch: Any) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.world = rank, options.world_size
        self.rank_sum = float(self.world * (self.world - 1) // 2)
        self.device = torch.device("cuda", options.local_rank) if options.backend == "nccl" else torch.device("cpu")

    def pattern(self, start: int, count: int) -> Any:
        index = self.torch.arange(start, start + count, device=self.device, dtype=self.torch.int64)
        return (index % PATTERN).to(self.torch.float32)

    def empty(self, count: int) -> Any:
        return self.torch.empty(count, device=self.device, dtype=self.torch.float32)

    def case(self, collective: str, size_bytes: int) -> Case:
        count = max(1, size_bytes // ITEM_BYTES)
        if collective not in ("all_reduce", "broadcast"):
            count = max(1, count // self.world) * self.world
        case: Case = getattr(self, collective)(count)
        return case

    def all_reduce(self, count: int) -> Case:
        base, data = self.pattern(0, count), self.empty(count)
        expected = base * self.world + self.rank_sum
        return Case(data, base + self.rank, data, expected, lambda: self.dist.all_reduce(data))

    def broadcast(self, count: int) -> Case:
        base, data = self.pattern(0, count), self.empty(count)
        return Case(data, base + self.rank, data, base, lambda: self.dist.broadcast(data, 0))

    def all_gather(self, count: int) -> Case:
        part = count // self.world
        base, data, result = self.pattern(0, part), self.empty(part), self.empty(count)
        expected = self.torch.cat([base + rank for rank in range(self.world)])
        return Case(data, base + self.rank, result, expected, lambda: self.dist.all_gather_into_tensor(result, data))

    def reduce_scatter(self, count: int) -> Case:
        part = count // self.world
        base, data, result = self.pattern(0, count), self.empty(count), self.empty(part)
        expected = self.pattern(part * self.rank, part) * self.world + self.rank_sum
        return Case(data, base + self.rank, result, expected, lambda: self.dist.reduce_scatter_tensor(result, data))

    def all_to_all(self, count: int) -> Case:
        part = count // self.world
        base, data, result = self.pattern(0, part), self.empty(count), self.empty(count)
        ranks = range(self.world)
        given = self.torch.cat([base + self.rank + DESTINATION * to for to in ranks])
        expected = self.torch.cat([base + source + DESTINATION * self.rank for source in ranks])
        return Case(data, given, result, expected, lambda: self.dist.all_to_all_single(result, data))

    def sync(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def timed(self, case: Case, iterations: int) -> float:
        """Seconds of one operation on this rank, all ranks starting together."""
        case.fill()
        self.sync()
        self.dist.barrier()
        self.sync()
        began = time.perf_counter()
        for _ in range(iterations):
            case.run()
        self.sync()
        return (time.perf_counter() - began) / iterations

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, the same on every rank."""
        value = self.torch.tensor([seconds], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(value, self.dist.ReduceOp.MAX)
        return float(value.item())

    def checked(self, case: Case) -> int:
        case.fill()
        case.run()
        self.sync()
        return case.wrong()


def measure(ranks: Ranks, collective: str, size_bytes: int, options: argparse.Namespace) -> None:
    """Warm up and check, time the repetitions, check again."""
    case = ranks.case(collective, size_bytes)
    wrong = ranks.checked(case)
    once = ranks.slowest(ranks.timed(case, 1))
    iterations = max(1, min(MAX_ITERATIONS, int(options.seconds / max(once, 1e-9))))
    seconds = [ranks.timed(case, iterations) for _ in range(options.repetitions)]
    wrong += ranks.checked(case)
    told = {"collective": collective, "size_bytes": case.size_bytes, "rank": ranks.rank, "wrong": wrong}
    say(event="times", iterations=iterations, seconds=[round(each, 9) for each in seconds], **told)


def loaded_nccl(torch: Any) -> Optional[str]:
    """The version of the library that is loaded; torch's own word may be that of its build."""
    with Path("/proc/self/maps").open() as maps:
        paths = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    for path in paths:
        number = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0:
            scale = 10000 if number.value >= 10000 else 1000
            return "%d.%d.%d" % (number.value // scale, number.value % scale // 100, number.value % 100)
    return ".".join(map(str, torch.cuda.nccl.version()))


def start(options: argparse.Namespace) -> Ranks:
    """Join the other ranks, and prove it with one operation."""
    if options.backend == "gloo" and options.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    if options.nccl_interface:
        os.environ["NCCL_SOCKET_IFNAME"] = options.nccl_interface
    import torch
    import torch.distributed as dist

    rank = options.rank_base + options.local_rank
    if options.backend == "nccl":
        torch.cuda.set_device(options.local_rank)
    else:
        torch.set_num_threads(1)
    address = "[%s]" % options.master_addr if ":" in options.master_addr else options.master_addr
    dist.init_process_group(
        options.backend,
        init_method="tcp://%s:%d" % (address, options.master_port),
        rank=rank,
        world_size=options.world_size,
        timeout=datetime.timedelta(seconds=options.timeout),
    )
    ranks = Ranks(options, rank, torch)
    ranks.slowest(0.0)
    nccl = options.backend == "nccl"
    device = torch.cuda.get_device_name(options.local_rank) if nccl else "cpu"
    version = loaded_nccl(torch) if nccl else None
    say(event="ready", rank=rank, torch=torch.__version__, nccl=version, device=device)
    return ranks


def run_rank(options: argparse.Namespace) -> None:
    ranks = start(options)
    for collective in options.collectives.split(","):
        for size_bytes in map(int, options.sizes.split(",")):
            try:
                measure(ranks, collective, size_bytes, options)
            except RuntimeError as error:
                # every rank has the same backend, so all pass over it together
                if not any(word in str(error) for word in UNSUPPORTED_WORDS):
                    raise
                say(event="unsupported", collective=collective, size_bytes=size_bytes, text=first_line(error))
    ranks.dist.barrier()
    ranks.dist.destroy_process_group()


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def spawn_ranks(options: argparse.Namespace) -> int:
    """A process a GPU; the first that fails ends the others."""
    argv = [sys.executable, *sys.argv]
    children = [subprocess.Popen([*argv, "--local-rank", str(i)]) for i in range(options.nproc)]

    def stop(*_: Any) -> None:
        for child in children:
            child.kill()

    signal.signal(signal.SIGTERM, stop)
    while True:
        states = [child.poll() for child in children]
        failed = [state for state in states if state]
        if failed or None not in states:
            stop()
            return abs(failed[0]) if failed else 0
        time.sleep(0.05)


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--rank-base", "--world-size", "--nproc", "--master-port", "--repetitions"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--master-addr", "--backend", "--collectives", "--sizes"):
        parser.add_argument(name, required=True)
    for name in ("--seconds", "--timeout"):
        parser.add_argument(name, type=float, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--nccl-interface", default="")
    parser.add_argument("--local-rank", type=int, default=-1)
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> int:
    options = parse(argv)
    if options.local_rank < 0:
        say(event="started", pid=os.getpid())
        if options.nproc > 1:
            return spawn_ranks(options)
        options.local_rank = 0
    try:
        run_rank(options)
    except Exception as error:
        text = first_line(error)
        say(event="error", text=text, peer=any(word in text for word in PEER_WORDS))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
