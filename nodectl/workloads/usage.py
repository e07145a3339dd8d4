"""What a training takes: the time of its steps, GPU time and memory, bytes on the network, and the part of the peak."""

from __future__ import annotations

import ctypes
import re
import statistics
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodectl.workloads.ranks import Ranks

WARMUP_STEPS = 10
# of the timed steps, so that one run shows its own noise
PARTS = 5
_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")
# its port counters count words of four bytes
_WORD_BYTES = 4
_PATIENCE_S = 10.0
_PAUSE_S = 0.05
# dense, with fp32 accumulation, TFLOP/s: half precision, tf32, fp32; data sheets of NVIDIA, the first name that fits;
# the first is that of nodectl/data/gpus/models.yml, which does not come to nodes
_PEAKS = (
    (r"GB200", 2500, 1250, 80),
    (r"B200", 2250, 1125, 75),
    (r"H100 PCIe", 756, 378, 51),
    (r"H[12]00 NVL", 835, 418, 60),
    (r"H100|H200|H800|GH200", 989, 494, 67),
    (r"A100|A800", 312, 156, 19.5),
    (r"A30\b", 165, 82, 10.3),
    (r"A10\b", 125, 62.5, 31.2),
    (r"A40\b", 149.7, 74.8, 37.4),
    (r"A6000", 154.8, 77.4, 38.7),
    (r"L40S", 362, 183, 91.6),
    (r"L40\b", 181, 90.5, 90.5),
    (r"L4\b", 121, 60, 30.3),
    (r"RTX 5090(?! D)", 209.5, 104.8, 104.8),
    (r"RTX 4090(?! D)", 165.2, 82.6, 82.6),
    (r"RTX 3090 Ti", 80, 40, 40),
    (r"RTX 3090", 71, 35.6, 35.6),
    (r"V100-PCIE", 112, 14, 14),
    (r"V100S", 130, 16.4, 16.4),
    (r"V100", 125, 15.7, 15.7),
    (r"T4\b", 65, 8.1, 8.1),
)


class Energy:
    """A GPU's counter of the energy that it has drawn since its driver came up, by NVML (Volta and newer)."""

    def __init__(self, device: torch.device) -> None:
        self._counter: Any = None
        # torch has it since 2.3
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None) if device.type == "cuda" else None
        if uuid is None:
            return
        try:
            nvml, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
            if nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)) == 0:
                self._counter = partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        except (OSError, AttributeError):  # no driver, or one that is older than the counter
            return

    def joules(self) -> float | None:
        """Return its reading; None if the GPU does not tell."""
        millijoules = ctypes.c_ulonglong()
        told = self._counter is not None and self._counter(ctypes.byref(millijoules)) == 0
        return millijoules.value / 1e3 if told else None


class Clock:
    """Durations of the steps of this run, how many samples all ranks had in each, and how long it waited for them.

    `joules` is what this rank's GPU drew in the steps after the warm-up; None if it does not tell.
    """

    def __init__(self, device: torch.device, steps: int) -> None:
        self.device = device
        self.warmup = min(WARMUP_STEPS, steps // 2)  # a short run keeps half of its steps
        self.timed_s = 0.0
        self.durations_s: list[float] = []
        self.waits_s: list[float] = []
        self.samples: list[int] = []
        self.joules: float | None = None
        self._energy = Energy(device)
        self._read_j: float | None = None
        self._began_s = self._ended_s = 0.0

    @property
    def is_warm(self) -> bool:
        """The next step counts."""
        return len(self.durations_s) >= self.warmup

    def start(self) -> None:
        """Take the time at which a step begins: before its samples are asked for."""
        # the counter moves some times a second: steps without a pause are read as one
        if self.is_warm and (self._read_j is None or time.perf_counter() - self._ended_s > _PAUSE_S):
            self._read_j = self._energy.joules()
        self._began_s = time.perf_counter()

    def stop(self, samples: int, wait_s: float) -> None:
        """Note the end of a step; a GPU is waited for, else only its queue would be timed."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._ended_s = time.perf_counter()
        self.timed_s += self._ended_s - self._began_s if self.is_warm else 0.0
        self.durations_s.append(self._ended_s - self._began_s)
        self.waits_s.append(wait_s)
        self.samples.append(samples)
        if self._read_j is not None and (now := self._energy.joules()) is not None:
            self.joules = (self.joules or 0.0) + now - self._read_j
            self._read_j = now

    def median_step_ms(self, last: int = 0) -> float | None:
        """Median over this run, or its `last` steps, without warm-up; None where only warm-up was run."""
        timed = self.durations_s[self._from(last) :]
        return round(statistics.median(timed) * 1e3, 3) if timed else None

    def samples_per_s(self, last: int = 0) -> float | None:
        """Return the samples of all ranks over the time of the same steps; None without any."""
        begin = self._from(last)
        total_s = sum(self.durations_s[begin:])
        return round(sum(self.samples[begin:]) / total_s, 1) if total_s else None

    def figures(self) -> dict[str, Any]:
        """Return figures of the steps after the warm-up, null without; `step_spread`: (p95 - p5) over the median."""
        timed = sorted(self.durations_s[self.warmup :])
        waited_s = sum(self.waits_s[self.warmup :])
        middle, low, high = (timed[round(part * (len(timed) - 1))] if timed else 0.0 for part in (0.5, 0.05, 0.95))
        size = max(1, -(-(len(self.durations_s) - self.warmup) // PARTS))
        return {
            "median_step_ms": self.median_step_ms(),
            "p95_step_ms": round(high * 1e3, 3) if timed else None,
            "step_spread": round((high - low) / middle, 4) if timed else None,
            "timed_steps": len(timed),
            "timed_s": round(sum(timed), 3),
            "untimed_steps": self.warmup,
            "samples_per_s": self.samples_per_s(),
            "samples_per_s_in_parts": [
                round(sum(self.samples[at : at + size]) / sum(self.durations_s[at : at + size]), 1)
                for at in range(self.warmup, len(self.durations_s), size)
            ],
            "data_wait_share": round(waited_s / sum(timed), 4) if timed else None,
        }

    def _from(self, last: int) -> int:
        return max(self.warmup, len(self.durations_s) - last if last else 0)


def peak_flops(name: str, precision: str) -> float | None:
    """Return what a GPU of this name can do in a second at most; None if that is not known."""
    for pattern, half, tf32, single in _PEAKS:
        if re.search(pattern, name):
            return {"fp32": single, "tf32": tf32}.get(precision, half) * 1e12
    return None


def sent_bytes(net: Path = _NET, infiniband: Path = _INFINIBAND) -> int:
    """Return what this host's network interfaces and RDMA ports have sent since they came up, its own loop left out.

    An Ethernet port that also carries RDMA counts that in its port counters alone.
    """
    total = 0
    for folder in net.glob("*"):
        # what stands on others (a bridge, a bond, a VLAN) would count their bytes again
        if folder.name != "lo" and not list(folder.glob("lower_*")):
            total += _read_count(folder / "statistics/tx_bytes")
    for counter in infiniband.glob("*/ports/*/counters/port_xmit_data"):
        total += _WORD_BYTES * _read_count(counter)
    return total


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


class GpuUse:
    """One GPU's use as nvidia-smi tells it each second, by one process, until it is stopped."""

    def __init__(self, which: str) -> None:
        self._shares: list[float] = []
        query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop=1"]
        # it ends with its pipe, also where this process is killed
        try:
            self._asking = subprocess.Popen(
                ["nvidia-smi", f"--id={which}", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:  # no nvidia-smi
            return
        self._reader = threading.Thread(target=self._read, args=(self._asking.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.strip().isdigit():  # what it cannot tell is [N/A]
                self._shares.append(float(line) / 100)

    def stop(self) -> float | None:
        """Return the mean share of the time in which a kernel ran, 0 to 1; None if that was not told."""
        if hasattr(self, "_asking"):
            self._asking.terminate()
            self._asking.wait()
            self._reader.join(_PATIENCE_S)
        return sum(self._shares) / len(self._shares) if self._shares else None


class Usage:
    """Counted from the first step after the warm-up to the last; what a device does not tell is null."""

    def __init__(self, group: Ranks, precision: str) -> None:
        self._group, self._precision = group, precision
        self._began_bytes: int | None = None
        self._sent_bytes = 0
        self._use: GpuUse | None = None
        self._share: float | None = None

    def start(self) -> None:
        """Begin to count; only the first call does."""
        if self._began_bytes is not None:
            return
        self._began_bytes = sent_bytes()
        if self._group.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._group.device)
            uuid = getattr(torch.cuda.get_device_properties(self._group.device), "uuid", None)  # torch has it since 2.3
            self._use = GpuUse(f"GPU-{uuid}" if uuid is not None else str(self._group.local_rank))

    def stop(self) -> None:
        """End the count, after the last step."""
        if self._began_bytes is not None:
            self._sent_bytes = sent_bytes() - self._began_bytes
        if self._use is not None:
            self._share = self._use.stop()

    def joule_per_sample(self, clock: Clock) -> float | None:
        """Return what the GPUs of all ranks drew for a sample; None unless each tells. Every rank must call it."""
        told, joules = self._sum(float(clock.joules is not None)), self._sum(clock.joules or 0.0)
        samples = sum(clock.samples[clock.warmup :])
        return joules / samples if samples and round(told) == self._group.world_size else None

    def figures(self, flops_per_s: float | None, steps: int) -> dict[str, Any]:
        """For the summary; every rank must call it. `flops_per_s` is of all ranks together, over so many steps.

        `gpu_utilisation` is the mean over ranks of the part of the time in which any kernel ran, which is no measure of
        how well it ran (`mfu` is). `net_bytes_per_step` is what all hosts sent, whoever sent it.
        """
        group, on_gpu = self._group, self._group.device.type == "cuda"
        first_here = group.local_rank == 0
        sent = self._sum(float(self._sent_bytes) if first_here else 0.0)
        memory = torch.cuda.max_memory_allocated(group.device) if on_gpu else 0
        watched, shares = self._sum(float(self._share is not None)), self._sum(self._share or 0.0)
        name = torch.cuda.get_device_name(group.device) if on_gpu else "cpu"
        peak = peak_flops(name, self._precision) if on_gpu else None
        mfu = None if peak is None or flops_per_s is None else round(flops_per_s / (peak * group.world_size), 4)
        return {
            "model_flops_per_s": flops_per_s,
            "mfu": mfu,
            "device_name": name,
            "peak_memory_bytes": int(self._most(float(memory))) if on_gpu else None,
            "gpu_utilisation": round(shares / watched, 4) if watched else None,
            "net_bytes_per_step": round(sent / steps) if steps and len(set(group.hostnames)) > 1 else None,
        }

    def _sum(self, value: float) -> float:
        return self._group.mean(torch.tensor(value, dtype=torch.float64, device=self._group.device)) * (
            self._group.world_size
        )

    def _most(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64, device=self._group.device)
        if self._group.world_size > 1:
            torch.distributed.all_reduce(total, torch.distributed.ReduceOp.MAX)
        return float(total.item())
