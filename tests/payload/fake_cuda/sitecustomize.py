"""On PYTHONPATH: GPUs that are none, so that a probe's program runs as it does on a node that has them.

Only torch.cuda's few calls are false, on tensors of the processor. It shows what a program does, and nothing of a GPU.
NODECTL_FAKE_GPUS is how many, NODECTL_FAKE_PAYLOAD the folder above the programs.
"""

import contextlib
import os
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.environ["NODECTL_FAKE_PAYLOAD"])
import torch

if TYPE_CHECKING:
    from nodectl.payload.probes.device import copies, gemm, matmul
    from nodectl.payload.probes.device.cuda import Cuda
else:  # as on a node
    from payload.probes.device import copies, gemm, matmul
    from payload.probes.device.cuda import Cuda

GPUS, MEMORY = int(os.environ["NODECTL_FAKE_GPUS"]), 64 << 20


def seconds(_: Cuda, work: Callable[[], Any]) -> float:
    """By the processor's clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# streams and events do nothing: what is given to the processor is done at once
for name, fake in {
    "device": lambda self, gpu: torch.device("cpu"),
    "sync": lambda self, *gpus: None,
    "stream": lambda self, gpu: gpu,
    "seconds": seconds,
}.items():
    setattr(Cuda, name, fake)
for name, value in {
    "is_available": lambda: True,
    "device_count": lambda: GPUS,
    "set_device": lambda gpu: None,
    "get_device_properties": lambda gpu: types.SimpleNamespace(
        name="NVIDIA Nothing", multi_processor_count=1, total_memory=MEMORY, L2_cache_size=1 << 20
    ),
    "get_device_capability": lambda gpu: (8, 0),
    "mem_get_info": lambda gpu: (MEMORY, MEMORY),
    "can_device_access_peer": lambda one, other: (one, other) != (0, 1),
    "cudart": lambda: types.SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0),
    "empty_cache": lambda: None,
}.items():
    setattr(torch.cuda, name, value)
torch.cuda.stream = contextlib.nullcontext
# a processor is slow
vars(matmul).update(SHAPES=((64, 64, 64), (96, 64, 64)), _LEAST_GPU=1)
copies.LEAST_BYTES = 1 << 20
gemm.SIDE_ON_GPU = 64
