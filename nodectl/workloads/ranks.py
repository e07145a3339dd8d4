"""The process group of a training program: who takes part, on which device, how bytes get around."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
else:  # on a node these files lie in one folder, without the package
    from pytorch import dist, torch


@dataclass(frozen=True)
class Ranks:
    """A process's place among all ranks; `device` is its own, `hostnames` are in rank order."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    backend: str
    hostnames: tuple[str, ...]

    @property
    def first(self) -> bool:
        """The one that prints results and writes files."""
        return self.rank == 0

    def mean(self, value: torch.Tensor) -> float:
        """`value` averaged over all ranks; every rank must call it."""
        total = value.detach().clone().to(torch.float64)
        if self.world_size > 1:
            dist.all_reduce(total)
        return float(total.item()) / self.world_size

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, in rank order, on every rank."""
        if self.world_size == 1:
            return [data]
        lengths = self._all(torch.tensor([len(data)], dtype=torch.int64, device=self.device))
        sizes_bytes = [int(length.item()) for length in lengths]
        block = to_tensor(data.ljust(max(sizes_bytes), b"\0")).to(self.device)
        parts = self._all(block)
        return [to_bytes(part)[: sizes_bytes[rank]] for rank, part in enumerate(parts)]

    def _all(self, mine: torch.Tensor) -> list[torch.Tensor]:
        parts = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(parts, mine)
        return parts

    def broadcast(self, data: bytes | None) -> bytes | None:
        """Rank 0's bytes (or None) on every rank."""
        if self.world_size == 1:
            return data
        size = torch.tensor([-1 if data is None else len(data)], dtype=torch.int64, device=self.device)
        dist.broadcast(size, src=0)
        size_bytes = int(size.item())
        if size_bytes < 0:
            return None
        block = torch.empty(size_bytes, dtype=torch.uint8, device=self.device)
        if self.first and data:
            block.copy_(to_tensor(data))
        dist.broadcast(block, src=0)
        return data if self.first else to_bytes(block)


def join(device_kind: str) -> Ranks:
    """Join the group that torchrun describes in the environment; one process on its own if there is none.

    `device_kind` is auto, cpu or cuda. SystemExit if the device does not exist.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = pick_device(device_kind, local_rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        dist.init_process_group(backend)
        rank, world_size = dist.get_rank(), dist.get_world_size()
    else:
        rank, world_size, backend = 0, 1, "none"
    alone = Ranks(rank, world_size, local_rank, device, backend, ())
    hostnames = tuple(name.decode() for name in alone.gather(socket.gethostname().encode()))
    return Ranks(rank, world_size, local_rank, device, backend, hostnames)


# not by numpy, which a node need not have (dist.all_gather_object needs it too)
def to_tensor(data: bytes) -> torch.Tensor:
    """Return `data` as uint8 on the CPU."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def to_bytes(block: torch.Tensor) -> bytes:
    """Return the bytes of a uint8 tensor of any device."""
    here = block.cpu().contiguous()
    return ctypes.string_at(here.data_ptr(), here.numel())


def pick_device(kind: str, local_rank: int) -> torch.device:
    """Return the GPU of this local rank, or the CPU; SystemExit if there is no such GPU."""
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local_rank >= gpus:
        raise SystemExit(
            f"{socket.gethostname()}: local rank {local_rank} needs GPU {local_rank}, but torch sees {gpus}; "
            "start no more ranks a host than it has GPUs, or pass --device cpu"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def leave() -> None:
    """Leave the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end() -> None:
    """End the process as a success, at once.

    A thread of torch that wakes up while Python winds down aborts the process now and then (seen: SIGABRT after the
    last line in one run of ten), and torchrun then calls a finished training failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
