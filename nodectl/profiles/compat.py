"""Which profiles cannot work together, and why; the rows that this rests on are data, in compat.yml."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.errors import ProfileError
from nodectl.profiles.matrix import GpuRow, Matrix
from nodectl.profiles.nccl import version_key
from nodectl.profiles.nccl_rules import finds_gid_index, nccl_problems
from nodectl.profiles.problem import Problem
from nodectl.profiles.schema import Hardware, Stack, Tuning
from nodectl.profiles.torch_rules import torch_problems

_THEMSELVES = "the profiles themselves"


class IncompatibleError(ProfileError):
    """Each profile is well formed, but they cannot work together: a finding (1), not a slip of the operator (2)."""

    exit_status = 1

    def __init__(self, message: str, remedy: str, problems: Sequence[Problem]) -> None:
        super().__init__(message, remedy)
        self.problems = tuple(problems)

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """Those of its problems that refuse; the others only warn."""
        return tuple(problem for problem in self.problems if problem.refuses)


def profile_problems(hardware: Hardware, stack: Stack, tuning: Tuning, matrix: Matrix) -> Iterator[Problem]:
    """Reasons why these profiles cannot work together, or may not; none where they can."""
    yield from _gpus_and_cuda(hardware, stack)
    if hardware.gpu:
        yield from gpu_problems(hardware.gpu.compute_capability, stack, matrix)
    yield from _driver(stack, matrix)
    yield from torch_problems(stack, matrix)
    yield from nccl_problems(tuning, stack.nccl)
    yield from _gid_index(hardware, stack, tuning)
    for field, why in sorted(stack.unverified.items()):
        yield Problem("unverified", f"the stack's {field} is not confirmed: {why}", "")


def gpu_problems(capability: str, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """What stands between GPUs of a compute capability and the stack's CUDA and driver."""
    if stack.cuda is None:
        return
    row = matrix.gpu(capability)
    if row is None:
        reason = f"compute capability {capability} is not in the matrix, so nothing was compared"
        yield Problem("gpu-unknown", reason, "")
    else:
        yield from _gpu_and_cuda(row, stack)
    yield from _flavour(capability, stack, matrix)


def _gid_index(hardware: Hardware, stack: Stack, tuning: Tuning) -> Iterator[Problem]:
    roce = any(nic.kind == "roce" for nic in hardware.nics)
    if roce and "NCCL_IB_GID_INDEX" not in tuning.nccl and not finds_gid_index(stack.nccl):
        yield Problem(
            "nccl-gid-index-missing",
            f"NCCL {stack.nccl} does not find the RoCE v2 GID index by itself",
            "NCCL user guide, networking troubleshooting",
            "NCCL_IB_GID_INDEX from show_gids in the host variable nodectl_nccl_env",
            mild=True,
        )


def _gpus_and_cuda(hardware: Hardware, stack: Stack) -> Iterator[Problem]:
    if hardware.gpus and stack.cuda is None:
        reason = f"the hardware has {hardware.gpus} GPUs, which a stack without CUDA leaves idle"
        yield Problem("gpus-without-cuda", reason, _THEMSELVES, other_stack=True)
    if hardware.gpus == 0 and stack.cuda is not None:
        reason = f"the stack brings CUDA {stack.cuda}, and the hardware has no GPU"
        yield Problem("cuda-without-gpus", reason, _THEMSELVES, other_stack=True)


def _gpu_and_cuda(row: GpuRow, stack: Stack) -> Iterator[Problem]:
    cuda = str(stack.cuda)
    if version_key(cuda) < version_key(row.min_cuda):
        reason = f"{row.name}, compute capability {row.compute_capability}, needs CUDA {row.min_cuda}"
        yield Problem("gpu-newer-than-cuda", f"{reason}, and the stack brings {cuda}", row.source, other_stack=True)
    if row.dropped_by and version_key(cuda) >= version_key(row.dropped_by):
        reason = f"{row.name}, compute capability {row.compute_capability}, was dropped by CUDA {row.dropped_by}"
        yield Problem(
            "gpu-dropped-by-cuda", f"{reason}, and the stack brings {cuda}", row.dropped_source, other_stack=True
        )


def _flavour(capability: str, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    for row in matrix.flavours:
        if stack.driver is None or stack.driver.flavour != row.flavour:
            continue
        other = "proprietary" if row.flavour == "open" else "open"
        nearest = f"driver flavour {other} (nodectl_overrides: stack.driver)"
        told = f"the stack's driver has the {row.flavour} kernel modules, which compute capability {capability}"
        if row.from_capability and version_key(capability) < version_key(row.from_capability):
            reason = f"{told} cannot use: they are for {row.from_capability} and later"
            yield Problem("flavour-open", reason, row.source, nearest, other_stack=True)
        if row.below_capability and version_key(capability) >= version_key(row.below_capability):
            reason = f"{told} cannot use: from {row.below_capability} on only the other ones work"
            yield Problem("flavour-proprietary", reason, row.source, nearest, other_stack=True)


def _driver(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    if stack.cuda is None:
        return
    row = matrix.cuda_row(stack.cuda)
    if row is None:
        yield Problem("cuda-unknown", f"CUDA {stack.cuda} is not in the matrix, so no driver was compared", "")
        return
    if stack.driver and version_key(stack.driver.branch) < version_key(row.min_driver)[:1]:
        reason = f"CUDA {stack.cuda} needs driver {row.min_driver}, and the stack installs branch {stack.driver.branch}"
        nearest = f"driver branch {version_key(row.min_driver)[0]}"
        yield Problem("driver-branch-too-old", reason, row.source, nearest, other_stack=True)
    if stack.driver and version_key(stack.driver.min) < version_key(row.min_driver):
        reason = f"CUDA {stack.cuda} needs driver {row.min_driver}, and the stack is content with {stack.driver.min}"
        yield Problem("driver-min-too-old", reason, row.source, f"driver.min {row.min_driver}")
