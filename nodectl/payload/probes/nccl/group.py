"""One rank among the others: joins them, times collectives, agrees with them on what is measured."""

import argparse
import os
import time
from typing import Any, Dict, Optional

from ...common import machine
from ...common.libraries import loaded_nccl
from ...common.ranks import init_process_group
from .cases import Case, Cases

# operations handed over at once, far fewer than CUDA lets wait
DISPATCHED = 20


class Group:
    """This process and the others of the group."""

    def __init__(self, torch: Any, rank: int, world: int, device: Any) -> None:
        self.torch, self.dist, self.device = torch, torch.distributed, device
        self.rank, self.world = rank, world
        self.cases = Cases(torch, rank, world, device)

    def sync(self) -> None:
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

    def dispatched(self, case: Case) -> Optional[float]:
        """Seconds that this rank needs to hand one operation to its GPU; None where the processor does the work.

        Few at a time: a GPU that lags behind would make it wait.
        """
        if self.device.type != "cuda":
            return None
        self.sync()
        began = time.perf_counter()
        for _ in range(DISPATCHED):
            case.run()
        took = time.perf_counter() - began
        self.sync()
        return took / DISPATCHED

    def checked(self, case: Case) -> int:
        """One run; how many of its elements are wrong."""
        self.cases.fill(case)
        self.cases.poison(case)
        case.run()
        self.sync()
        return self.cases.wrong(case)

    def largest(self, value: float) -> float:
        """Of all ranks' values; the same on every rank."""
        return self._agreed(value, self.dist.ReduceOp.MAX)

    def least(self, value: float) -> float:
        """Of all ranks' values; the same on every rank."""
        return self._agreed(value, self.dist.ReduceOp.MIN)

    def _agreed(self, value: float, by: Any) -> float:
        shared = self.torch.tensor([value], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(shared, by)
        return float(shared.item())

    def neighbours(self) -> int:
        """How many ranks are on this machine, in whichever container."""
        names = [None] * self.world
        self.dist.all_gather_object(names, machine.boot_id() or str(self.rank))
        return names.count(names[self.rank])

    def free_bytes(self, on_machine: int) -> float:
        """Return what there is for this rank: the GPU's free memory, or its part of what the machine has left."""
        if self.device.type == "cuda":
            return float(self.torch.cuda.mem_get_info(self.device)[0])
        return (machine.available_bytes() or machine.LEAST_BYTES) / on_machine


def join(options: argparse.Namespace, rank: int, device_index: int) -> Group:
    """Meet the other ranks, and prove it with one operation."""
    import torch
    import torch.distributed as dist

    if options.backend == "nccl":
        torch.cuda.set_device(device_index)
        device = torch.device("cuda", device_index)
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


def bind(bus_id: str, local_rank: int, nproc: int) -> Optional[int]:
    """Run on the processors beside this GPU, or, of several ranks on processors, a NUMA node each.

    The NUMA node, or None where there is only one or none is told.
    """
    numa, cpus = None, ""
    if bus_id:
        place = machine.pci_device(bus_id)
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
