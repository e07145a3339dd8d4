"""Which profiles cannot work together, and why; each refusal rests on what the profiles themselves say."""

from __future__ import annotations

from nodectl.errors import ProfileError
from nodectl.profiles.nccl import version_key
from nodectl.profiles.schema import Hardware, Stack


class IncompatibleError(ProfileError):
    """Each profile is well formed, but they cannot work together: a finding (1), not a slip of the operator (2)."""

    exit_status = 1


def refusals(hardware: Hardware, stack: Stack) -> list[str]:
    """Reasons why this stack cannot serve this hardware; none where it can."""
    reasons = []
    if hardware.gpus and stack.cuda is None:
        reasons.append(f"the hardware has {hardware.gpus} GPUs, which a stack without CUDA leaves idle")
    if not hardware.gpus and stack.cuda is not None:
        reasons.append(f"the stack brings CUDA {stack.cuda}, and the hardware has no GPU")
    if version_key(stack.python.min) > version_key(stack.python.max):
        reasons.append(f"python.min {stack.python.min} is above python.max {stack.python.max}")
    return reasons
