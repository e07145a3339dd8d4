"""Combinations that cannot work, each as the variables of a host and the words that refuse it."""

from dataclasses import dataclass, field
from typing import Any

A100 = {"address": "0000:07:00.0", "device": "0x20b2", "numa_node": 0}
# a DGX A100 as node_look sees it; each case changes what it is about
LOOK: dict[str, Any] = {
    "os": {"id": "ubuntu", "version": "22.04", "key": "ubuntu-22.04"},
    "architecture": "x86_64",
    "gpus": [A100] * 8,
    "nvswitch": True,
    "driver": {"version": "535.183.01", "origin": "apt"},
}
V100 = {"model": "Tesla V100-SXM2-32GB", "compute_capability": "7.0", "memory_gb": 32}
B200 = {"model": "NVIDIA B200", "compute_capability": "10.0", "memory_gb": 180}


@dataclass(frozen=True, slots=True)
class Combination:
    """`reason` and `nearest` are words of the refusal; `look` is merged over LOOK."""

    code: str
    hardware: str
    stack: str
    reason: str
    nearest: str
    tuning: str = "stock"
    overrides: dict[str, Any] = field(default_factory=dict)
    look: dict[str, Any] = field(default_factory=dict)
    driver: str = ""

    @property
    def host(self) -> str:
        """The name of the host that stands for it."""
        return f"case-{self.code}"

    @property
    def variables(self) -> dict[str, Any]:
        """The host's variables; no look at all where only the profiles matter."""
        found: dict[str, Any] = {
            "nodectl_hardware": self.hardware,
            "nodectl_stack": self.stack,
            "nodectl_tuning": self.tuning,
            "nodectl_overrides": self.overrides,
            "nodectl_recorded_look": {**LOOK, **self.look},
        }
        return {**found, "nodectl_driver": self.driver} if self.driver else found


REFUSED = (
    # between profiles the newest torch counts (cu126), on a host what fits it best (cu128)
    Combination("gpus-without-cuda", "dgx-a100", "cpu", "8 GPUs, which a stack without CUDA leaves idle", "stack cu12"),
    Combination(
        "cuda-without-gpus",
        "lab-cpu",
        "cu121",
        "brings CUDA 12.1, and the hardware has no GPU",
        "stack cpu",
        look={"gpus": [], "nvswitch": False},
    ),
    Combination(
        "gpu-newer-than-cuda", "h100-pcie-8", "cu116", "9.0, needs CUDA 11.8, and the stack brings 11.6", "cu118"
    ),
    Combination(
        "gpu-dropped-by-cuda",
        "dgx-a100",
        "cu13",
        "was dropped by CUDA 13.0",
        "stack cu126",
        overrides={"hardware": {"gpu": V100}},
    ),
    Combination(
        "driver-too-old",
        "dgx-a100",
        "cu128",
        "CUDA 12.8 needs driver 525, and this host keeps 470.57.02",
        "nodectl_driver: manage, which installs branch 580",
        look={"driver": {"version": "470.57.02", "origin": "apt"}},
        driver="keep",
    ),
    Combination(
        "driver-branch-too-old",
        "dgx-a100",
        "cu121",
        "the stack installs branch 470",
        "driver branch 525",
        overrides={"stack": {"driver": {"branch": "470"}}},
        driver="manage",
    ),
    Combination(
        "gpu-unknown-to-driver",
        "rtx5090-2",
        "cu128",
        "is known to drivers from branch 570 on, and the stack installs branch 550",
        "driver branch 570",
        overrides={"stack": {"driver": {"branch": "550"}}},
        driver="manage",
    ),
    Combination(
        "driver-ignores-gpu",
        "unknown",
        "cu126",
        "V100, which is seen here, is known to drivers up to branch 580, and this host keeps 595.58.03",
        "a driver of branch 580, installed by whoever owns this one",
        look={"gpus": [{"device": "0x1db6"}], "driver": {"version": "595.58.03", "origin": "runfile"}},
    ),
    Combination(
        "driver-min-too-old",
        "dgx-a100",
        "cu121",
        "the stack is content with 450.80.02",
        "driver.min 525",
        overrides={"stack": {"driver": {"min": "450.80.02"}}},
    ),
    Combination(
        "flavour-open",
        "dgx-a100",
        "cu128",
        "open kernel modules, which compute capability 7.0 cannot use",
        "driver flavour proprietary",
        overrides={"hardware": {"gpu": V100}},
    ),
    Combination(
        "flavour-proprietary",
        "dgx-a100",
        "cu128",
        "proprietary kernel modules, which compute capability 10.0 cannot use",
        "driver flavour open",
        overrides={"hardware": {"gpu": B200}, "stack": {"driver": {"flavour": "proprietary"}}},
    ),
    Combination(
        "python-outside-wheel",
        "dgx-a100",
        "cu121",
        "wheels for Python 3.8 to 3.11, and the stack allows 3.8 to 3.12",
        "python 3.8 to 3.11",
        overrides={"stack": {"python": {"max": "3.12"}}},
    ),
    Combination(
        "python-range",
        "dgx-a100",
        "cu121",
        "python.min 3.11 is above python.max 3.8",
        "python.min 3.8",
        overrides={"stack": {"python": {"min": "3.11", "max": "3.8"}}},
    ),
    Combination(
        "torch-cuda",
        "dgx-a100",
        "cu121",
        "torch 2.1.2 with CUDA 12.4 is no build of PyTorch's",
        "torch 2.1.2 with CUDA 12.1 (cuDNN 8.9.2.26, NCCL 2.18.1)",
        overrides={"stack": {"cuda": "12.4"}},
    ),
    Combination(
        "torch-not-released",
        "dgx-a100",
        "cu128",
        "there is no torch 2.9.2: PyTorch released none between 2.9.1 and 2.10.0",
        "torch 2.10.0 with CUDA 12.8 (cuDNN 9.10.2.21, NCCL 2.27.5)",
        overrides={"stack": {"torch": "2.9.2"}},
    ),
    Combination(
        "numpy-torch",
        "dgx-a100",
        "cu121",
        "is built for numpy 1, and cannot use numpy 2.0.2",
        "numpy 1.26.4",
        overrides={"stack": {"packages": {"numpy": "2.0.2"}, "python": {"min": "3.9"}}},
    ),
    Combination(
        "numpy-python",
        "dgx-a100",
        "cu128",
        "numpy 1.26.4 has wheels for Python 3.9 to 3.12, and the stack allows 3.10 to 3.13",
        "python 3.10 to 3.12",
        overrides={"stack": {"packages": {"numpy": "1.26.4"}}},
    ),
    Combination(
        "torchvision-torch",
        "dgx-a100",
        "cu128",
        "torchvision 0.23.0 is not built for torch 2.9.1",
        "torchvision 0.24.1",
        overrides={"stack": {"packages": {"torchvision": "0.23.0"}}},
    ),
    Combination(
        "os-unknown",
        "dgx-a100",
        "cu128",
        "no host is debain-12, did you mean debian-12?",
        "os: debian-12, ubuntu-22.04",
        overrides={"stack": {"os": ["debain-12", "ubuntu-22.04"]}},
    ),
    Combination(
        "system-outside-wheel",
        "dgx-a100",
        "cu128",
        "torch 2.9.1 has wheels for glibc 2.28 and later, and ubuntu-18.04 has 2.27",
        "stack cu124",
        overrides={"stack": {"os": ["ubuntu-18.04", "ubuntu-22.04"]}},
    ),
    Combination(
        "torch-cudnn",
        "dgx-a100",
        "cu121",
        "loads cuDNN 8.9.2.26 of its wheel, and the stack says 8.9.0.131",
        "cudnn: 8.9.2.26",
        overrides={"stack": {"cudnn": "8.9.0.131"}},
    ),
    Combination(
        "torch-nccl",
        "dgx-a100",
        "cu121",
        "loads NCCL 2.18.1 of its wheel, and the stack says 2.17.1",
        "nccl: 2.18.1",
        overrides={"stack": {"nccl": "2.17.1"}},
    ),
    Combination(
        "nvswitch",
        "dgx-a100",
        "cu121",
        "claims NVSwitch and its fabric manager, and no NVSwitch is seen here",
        "nodectl_overrides: {hardware: {nvswitch: false, link: null}}",
        look={"nvswitch": False},
    ),
    Combination(
        "os",
        "dgx-a100",
        "cu121",
        "this host runs debian-12",
        "stack cu124",
        look={"os": {"id": "debian", "version": "12", "key": "debian-12"}},
    ),
    Combination(
        "architecture",
        "dgx-a100",
        "cu121",
        "this host is aarch64",
        "stack cu129",
        look={"architecture": "aarch64", "driver": {"version": "580.65.06", "origin": "apt"}},
    ),
    Combination(
        "deepspeed-torch",
        "dgx-a100",
        "cu128",
        "DeepSpeed 0.12.6 does not work with torch 2.9.1",
        "deepspeed 0.14.1 or later, or torch before 2.4",
        overrides={"stack": {"deepspeed": "0.12.6"}},
    ),
    Combination(
        "nccl-algo-bare",
        "dgx-a100",
        "cu128",
        "makes every collective but all_reduce fail with NCCL 2.27.5",
        "NCCL_ALGO=ring,tree;allreduce:tree",
        overrides={"allow_debug_variables": True, "nccl": {"NCCL_ALGO": "Tree"}},
    ),
)
