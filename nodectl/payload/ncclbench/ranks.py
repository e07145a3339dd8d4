"""One rank among the others: joins them, times collectives, agrees with them on what is measured."""

import argparse
import ctypes
import datetime
import os
import re
import time
from pathlib import Path
from typing import Any, Dict, Optional

from .beside import machine
from .cases import Case, Cases

PCI = Path("/sys/bus/pci/devices")


class Ranks:
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
        told = self.torch.tensor([value], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(told, by)
        return float(told.item())

    def neighbours(self) -> int:
        """How many ranks are on this machine, in whichever container."""
        names = [None] * self.world
        self.dist.all_gather_object(names, machine.text(Path("/proc/sys/kernel/random/boot_id")) or str(self.rank))
        return names.count(names[self.rank])

    def free_bytes(self, on_machine: int) -> float:
        """What there is for this rank: the GPU's free memory, or its part of what the machine has left."""
        if self.device.type == "cuda":
            return float(self.torch.cuda.mem_get_info(self.device)[0])
        return machine.available_bytes() / on_machine


def join(options: argparse.Namespace, rank: int, device_index: int) -> Ranks:
    """Meet the other ranks, and prove it with one operation."""
    import torch
    import torch.distributed as dist

    if options.backend == "nccl":
        torch.cuda.set_device(device_index)
        device = torch.device("cuda", device_index)
    else:
        torch.set_num_threads(1)
        device = torch.device("cpu")
    address = "[%s]" % options.master_addr if ":" in options.master_addr else options.master_addr
    dist.init_process_group(
        options.backend,
        init_method="tcp://%s:%d" % (address, options.master_port),
        rank=rank,
        world_size=options.world_size,
        timeout=datetime.timedelta(seconds=options.timeout),
    )
    ranks = Ranks(torch, rank, options.world_size, device)
    ranks.largest(0.0)
    return ranks


def described(ranks: Ranks, numa: Optional[int]) -> Dict[str, Any]:
    """What was loaded, and on what it runs."""
    torch = ranks.torch
    nccl = ranks.device.type == "cuda"
    return {
        "rank": ranks.rank,
        "torch": torch.__version__,
        "nccl": loaded_nccl(torch) if nccl else None,
        "cuda": torch.version.cuda if nccl else None,
        "device": torch.cuda.get_device_name(ranks.device) if nccl else "cpu",
        "numa": numa,
    }


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


def bind(bus_id: str, local_rank: int, nproc: int) -> Optional[int]:
    """Run on the processors beside this GPU, or, of several ranks on processors, a NUMA node each.

    The NUMA node, or None where there is only one or none is told.
    """
    numa, cpus = None, ""
    if bus_id:
        # the driver writes domains with eight digits, sysfs with four
        place = PCI / re.sub(r"^0000([0-9a-f]{4}:)", r"\1", bus_id.lower())
        number = machine.text(place / "numa_node")
        numa = int(number) if number.isdigit() else None
        cpus = machine.text(place / "local_cpulist")
    elif nproc > 1:
        nodes = [each for each in machine.scopes() if each.numa is not None]
        if nodes:
            numa = nodes[local_rank % len(nodes)].numa
            cpus = machine.text(machine.NODES / ("node%d" % (numa or 0)) / "cpulist")
    allowed = set(machine.cpu_list(cpus)) & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)
    return numa
