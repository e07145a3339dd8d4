"""One rank among the others: joins them, and runs collectives whose every element is known beforehand.

Buffers are filled and checked in pieces, so that a case needs little more memory than what it sends and receives.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ...common import machine
from ...common.libraries import loaded_nccl
from ...common.ranks import init_process_group

GPUS = Path("/proc/driver/nvidia/gpus")
ITEM_BYTES = 4
# of float32 that are sums of few small numbers: a result is right or wrong and never nearly right
PATTERN = 13
DESTINATION = 100
# what no pattern holds: a result that was never written is wrong
POISON = -1.0
# elements handled at a time
PIECE = PATTERN << 18
# the most buffers that a case has, each of its whole size
BUFFERS = 2


class Block(NamedTuple):
    """`length` elements from `at` on that hold factor * pattern(start …) + add."""

    at: int
    length: int
    start: int
    factor: float
    add: float


class Case(NamedTuple):
    """One collective at one size: `given` describes `data` before each run, `expected` describes `result` after it."""

    data: Any
    given: List[Block]
    result: Any
    expected: List[Block]
    run: Callable[[], Any]

    @property
    def size_bytes(self) -> int:
        """The larger of the two buffers: what nccl-tests calls the size."""
        count: int = max(self.data.numel(), self.result.numel())
        return count * ITEM_BYTES


class Cases:
    """Builds, fills and checks the cases of one rank among `world`."""

    def __init__(self, torch: Any, rank: int, world: int, device: Any) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.world, self.device = rank, world, device
        self.rank_sum = float(world * (world - 1) // 2)
        index = torch.arange(PIECE + PATTERN, device=device, dtype=torch.int64)
        self.pattern = (index % PATTERN).to(torch.float32)

    def case(self, collective: str, size_bytes: int) -> Case:
        """Return the collective at this size, as far as the ranks can share it evenly."""
        count = max(1, size_bytes // ITEM_BYTES)
        if collective in ("all_gather", "reduce_scatter", "all_to_all"):
            count = max(1, count // self.world) * self.world
        case: Case = getattr(self, collective)(count)
        return case

    def all_reduce(self, count: int) -> Case:
        """Sum all ranks' buffers."""
        data = self.empty(count)
        expected = [Block(0, count, 0, float(self.world), self.rank_sum)]
        return Case(data, [self.own(count)], data, expected, lambda: self.dist.all_reduce(data))

    def broadcast(self, count: int) -> Case:
        """Send rank 0's buffer to all."""
        data = self.empty(count)
        expected = [Block(0, count, 0, 1.0, 0.0)]
        return Case(data, [self.own(count)], data, expected, lambda: self.dist.broadcast(data, 0))

    def all_gather(self, count: int) -> Case:
        """Put all ranks' parts together."""
        part = count // self.world
        data, result = self.empty(part), self.empty(count)
        expected = [Block(part * rank, part, 0, 1.0, float(rank)) for rank in range(self.world)]
        inputs = [self.own(part)]
        return Case(data, inputs, result, expected, lambda: self.dist.all_gather_into_tensor(result, data))

    def reduce_scatter(self, count: int) -> Case:
        """Sum all ranks' buffers, a part for each."""
        part = count // self.world
        data, result = self.empty(count), self.empty(part)
        expected = [Block(0, part, part * self.rank, float(self.world), self.rank_sum)]
        inputs = [self.own(count)]
        return Case(data, inputs, result, expected, lambda: self.dist.reduce_scatter_tensor(result, data))

    def all_to_all(self, count: int) -> Case:
        """Send each rank a part of its own."""
        part = count // self.world
        data, result = self.empty(count), self.empty(count)
        ranks = range(self.world)
        given = [Block(part * to, part, 0, 1.0, float(self.rank + DESTINATION * to)) for to in ranks]
        expected = [Block(part * came, part, 0, 1.0, float(came + DESTINATION * self.rank)) for came in ranks]
        return Case(data, given, result, expected, lambda: self.dist.all_to_all_single(result, data))

    def sendrecv(self, count: int) -> Case:
        """Each rank sends to the next and receives from the one before, all at once, as nccl-tests does."""
        data, result = self.empty(count), self.empty(count)
        after, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world

        def run() -> None:
            send = self.dist.P2POp(self.dist.isend, data, after)
            receive = self.dist.P2POp(self.dist.irecv, result, before)
            for work in self.dist.batch_isend_irecv([send, receive]):
                work.wait()

        return Case(data, [self.own(count)], result, [Block(0, count, 0, 1.0, float(before))], run)

    def own(self, count: int) -> Block:
        """Return what this rank brings: the pattern and its number."""
        return Block(0, count, 0, 1.0, float(self.rank))

    def empty(self, count: int) -> Any:
        """Return an uninitialised buffer."""
        return self.torch.empty(count, device=self.device, dtype=self.torch.float32)

    def fill(self, case: Case) -> None:
        """Write what the case is given; what an earlier run left is not taken for this one's result."""
        for part, values in self.pieces(case.data, case.given):
            part.copy_(values)
        if case.result is not case.data:
            case.result.fill_(POISON)

    def wrong(self, case: Case) -> int:
        """Return how many elements are not what they must be."""
        return sum(int((part != values).sum().item()) for part, values in self.pieces(case.result, case.expected))

    def pieces(self, tensor: Any, blocks: List[Block]) -> Iterator[Tuple[Any, Any]]:
        """Parts of a buffer with the values that belong there."""
        for block in blocks:
            for done in range(0, block.length, PIECE):
                count = min(PIECE, block.length - done)
                start = (block.start + done) % PATTERN
                values = (self.pattern[start : start + count] * block.factor).add_(block.add)
                yield tensor[block.at + done : block.at + done + count], values


class Group:
    """A process of the group, and its way to the others."""

    def __init__(self, torch: Any, rank: int, world: int, device: Any) -> None:
        self.torch, self.dist, self.device = torch, torch.distributed, device
        self.rank, self.world = rank, world
        self.cases = Cases(torch, rank, world, device)

    def sync(self) -> None:
        """Wait until the GPU has done what it was given."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def timed(self, case: Case, iterations: int) -> float:
        """Seconds of one operation on this rank, all ranks starting together; sums may grow beyond all bounds."""
        self.sync()
        self.dist.barrier()
        self.sync()
        began = time.perf_counter()
        for _ in range(iterations):
            case.run()
        self.sync()
        return (time.perf_counter() - began) / iterations

    def checked(self, case: Case) -> int:
        """One run; how many of its elements are wrong."""
        self.cases.fill(case)
        case.run()
        self.sync()
        return self.cases.wrong(case)

    def largest(self, value: float) -> float:
        """Return the largest of all ranks' values; the same on every rank."""
        shared = self.torch.tensor([value], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(shared, self.dist.ReduceOp.MAX)
        return float(shared.item())

    def least(self, value: float) -> float:
        """Return the least of all ranks' values; the same on every rank."""
        return -self.largest(-value)

    def neighbours(self) -> int:
        """Return how many ranks are on this machine, in whichever container."""
        names = [None] * self.world
        self.dist.all_gather_object(names, machine.boot_id() or str(self.rank))
        return names.count(names[self.rank])

    def free_bytes(self, on_machine: int) -> float:
        """Return what there is for this rank: the GPU's free memory, or its part of what the machine has left."""
        if self.device.type == "cuda":
            return float(self.torch.cuda.mem_get_info(self.device)[0])
        return (machine.available_bytes() or machine.LEAST_BYTES) / on_machine


def join(options: argparse.Namespace, rank: int, gpu: Optional[int]) -> Group:
    """Meet the other ranks, and prove it with one operation."""
    import torch
    import torch.distributed as dist

    if options.backend == "nccl":
        torch.cuda.set_device(gpu)
        device = torch.device("cuda", gpu)
    else:
        torch.set_num_threads(1)
        device = torch.device("cpu")
    init_process_group(dist, options, rank)
    group = Group(torch, rank, options.world_size, device)
    group.largest(0.0)
    return group


def described(group: Group, numa: Optional[int]) -> Dict[str, Any]:
    """Return what was loaded, and on what it runs."""
    torch = group.torch
    nccl = group.device.type == "cuda"
    return {
        "rank": group.rank,
        "torch": torch.__version__,
        "nccl": (loaded_nccl() or ".".join(map(str, torch.cuda.nccl.version()))) if nccl else None,
        "cuda": torch.version.cuda if nccl else None,
        "device": torch.cuda.get_device_name(group.device) if nccl else "cpu",
        "numa": numa,
    }


def bind(gpu: Optional[int], local_rank: int, nproc: int) -> Optional[int]:
    """Run on the processors beside this GPU, or, of several ranks on processors, a NUMA node each.

    The NUMA node, or None if there is only one or none is told.
    """
    numa, cpus = None, ""
    # by their places on the bus, as CUDA counts them here
    gpus = sorted(folder.name for folder in GPUS.glob("*"))
    if gpu is not None and gpu < len(gpus):
        place = machine.pci_device(gpus[gpu])
        numa, cpus = machine.number(place / "numa_node"), machine.text(place / "local_cpulist")
    elif nproc > 1:
        nodes = [scope for scope in machine.scopes() if scope.numa is not None]
        if nodes:
            numa = nodes[local_rank % len(nodes)].numa
            cpus = machine.text(machine.NODES / ("node%d" % (numa or 0)) / "cpulist")
    allowed = set(machine.cpu_list(cpus)) & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)
    return numa
