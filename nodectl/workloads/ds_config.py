"""DeepSpeed's configuration: the rules by which DeepSpeed ends with one, and the one that a workload needs.

Standard library only: the controller judges files by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRAIN, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
AUTO = "auto"  # what Transformers and Accelerate put in
# as roles/deepspeed/templates/ds_config.json.j2 has them; a test holds the two together
_BUCKET = 500_000_000
_PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp16": {"enabled": True, "initial_scale_power": 16, "loss_scale_window": 1000},
    "bf16": {"enabled": True},
}


@dataclass(frozen=True)
class Batch:
    """Samples of an update (`train`) and of a rank's micro-batch; micro-batches of an update; ranks."""

    train: int
    micro: int
    accumulation: int
    world: int

    @classmethod
    def of(cls, micro: int, accumulation: int, world: int) -> Batch:
        """Return the one that holds for these."""
        return cls(micro * accumulation * world, micro, accumulation, world)

    @property
    def product(self) -> int:
        """Return what `train` has to be."""
        return self.micro * self.accumulation * self.world

    @property
    def holds(self) -> bool:
        """DeepSpeed starts with it."""
        return self.train == self.product and min(self.train, self.micro, self.accumulation) > 0

    @property
    def rule(self) -> str:
        """`train_batch_size 96 = 4 micro x 8 accumulation x 3 ranks`."""
        return f"{TRAIN} {self.product} = {self.micro} micro x {self.accumulation} accumulation x {self.world} ranks"


def batch_of(config: Mapping[str, Any], world: int) -> Batch:
    """Return the batch with which DeepSpeed runs `world` ranks: what is not given follows from the rest, rounded down.

    It may break the rule. ValueError if the configuration says too little, or no whole numbers.
    """
    train, micro, steps = (_whole(config, name) for name in (TRAIN, MICRO, ACCUMULATION))
    if micro is None:
        if train is None:
            raise ValueError(f"neither {TRAIN} nor {MICRO} is given, and DeepSpeed needs one of them")
        steps = 1 if steps is None else steps
        micro = _shared(train, world * steps)
    elif steps is None:
        steps = 1 if train is None else _shared(train, world * micro)
    return Batch(micro * steps * world if train is None else train, micro, steps, world)


def _shared(total: int, among: int) -> int:
    return total // among if among > 0 else 0


def _whole(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    if value is None or value == AUTO:
        return None
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole:
        raise ValueError(f"{name} is {value!r}, no whole number")
    return int(value)


def build(
    batch: Batch,
    *,
    stage: int,
    precision: str,
    clip: float,
    optimizer: Mapping[str, Any],
    offload_optimizer: bool,
    offload_parameters: bool,
) -> dict[str, Any]:
    """Return the configuration; `clip` 0 is none, `optimizer` as DeepSpeed has it: type and params."""
    if offload_parameters and stage < 3:
        raise ValueError(f"parameters are taken off the device by ZeRO-3 only, not by ZeRO-{stage}")
    zero: dict[str, Any] = {"stage": stage}
    if offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    zero.update(contiguous_gradients=True, overlap_comm=True)
    zero.update(reduce_bucket_size=_BUCKET, allgather_bucket_size=_BUCKET)
    config: dict[str, Any] = {
        TRAIN: batch.train,
        MICRO: batch.micro,
        ACCUMULATION: batch.accumulation,
        "gradient_clipping": clip,
        "steps_per_print": 10,
        "optimizer": optimizer,
        "zero_optimization": zero,
    }
    if precision in _PRECISIONS:
        config[precision] = dict(_PRECISIONS[precision])
    return config
