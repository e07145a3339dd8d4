"""How ranks share one model: who computes which columns and layers, who has which samples, and what cannot be mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodectl.workloads.settings import Settings

SHARDED = "fsdp2"
_ZERO = "zero"


@dataclass(frozen=True)
class Layout:
    """`data` copies of the model, each over `stages` x `tensor` ranks; a rank's neighbours share its columns."""

    data: int
    stages: int
    tensor: int


@dataclass(frozen=True)
class Divisible:
    """The numbers of a model that tensor and pipeline parallelism must divide: heads, layers, widths."""

    heads: int
    intermediate: int
    length: int
    layers: int


def of(settings: Settings, world_size: int) -> Layout:
    """Return the layout that these options mean for so many ranks; ValueError with the rule that they break."""
    a_copy = settings.tensor * settings.stages
    if world_size % a_copy:
        raise ValueError(
            f"{world_size} ranks cannot hold copies of a model over --tensor {settings.tensor} x --stages "
            f"{settings.stages} = {a_copy} ranks each: the number of ranks must be a multiple of {a_copy}"
        )
    return Layout(world_size // a_copy, settings.stages, settings.tensor)


def check(name: str, settings: Settings, world_size: int, model: Divisible | None) -> None:
    """Raise ValueError with the rule that strategy `name` breaks with these options; `model` None cannot be split."""
    layout = of(settings, world_size)
    if settings.offload != "none" and name != SHARDED and not name.startswith(_ZERO):
        raise ValueError(
            f"--offload goes with --parallel zero1, zero2, zero3 or {SHARDED}: "
            f"{name} keeps everything where it computes"
        )
    if settings.offload == "optimizer" and name == SHARDED:
        raise ValueError(
            f"--offload optimizer is not for {SHARDED}, which takes parameters along: --offload parameters"
        )
    if name == "dataparallel" and (settings.compile or settings.recompute != "none"):
        raise ValueError(
            "--parallel dataparallel copies every layer at each step, --compile and --recompute change them once: "
            "take a rank a GPU and --parallel ddp"
        )
    if layout.stages * layout.tensor == 1:
        return
    if model is None:
        raise ValueError("--tensor and --stages share the layers of workload llm's own decoder, and of no other model")
    if name.startswith(_ZERO):
        _check_zero(name, layout)
    if settings.compress != "none":
        raise ValueError(
            f"--compress {settings.compress} is for whole gradients, which every rank has: --tensor and --stages "
            "share them out"
        )
    if name not in ("ddp", SHARDED):
        raise ValueError(f"--parallel {name} is one process with a whole copy: --tensor and --stages need ranks")
    if layout.stages > 1 and settings.held_out:
        raise ValueError("--held-out asks the whole model, and with --stages no rank can answer: leave one of them out")
    _check_divisible(layout, model)
    if layout.tensor > 1 and layout.data > 1 and name != SHARDED:
        raise ValueError(
            f"--tensor {layout.tensor} over {layout.data} copies needs --parallel {SHARDED}: DistributedDataParallel "
            "does not take parameters that are shared among ranks"
        )


def _check_zero(name: str, layout: Layout) -> None:
    if layout.stages > 1 and name != "zero1":
        raise ValueError(
            f"--parallel {name} cannot be mixed with --stages {layout.stages}: ZeRO-2 and ZeRO-3 are incompatible with "
            "pipeline parallelism (DeepSpeed's rule: a stage keeps the gradients of all micro-batches until the last, "
            "and they would be shared out after each)"
        )
    raise ValueError(f"--parallel {name} is DeepSpeed's, --tensor and --stages are torch's: take --parallel {SHARDED}")


def _check_divisible(layout: Layout, model: Divisible) -> None:
    tensor, stages = ("--tensor", layout.tensor), ("--stages", layout.stages)
    rules = (
        (*tensor, "heads", model.heads, "each rank computes whole heads"),
        (*tensor, "intermediate columns", model.intermediate, "each rank computes the same number of columns"),
        (*tensor, "positions of a sample", model.length, "norms are shared along the sequence"),
        (*stages, "layers", model.layers, "each stage has the same number of layers"),
    )
    for option, ranks, what, number, why in rules:
        if number % ranks:
            raise ValueError(
                f"{option} {ranks} cannot share {number} {what}: {why}, so {number} must be a multiple of {ranks}"
            )
