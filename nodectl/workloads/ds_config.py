"""DeepSpeed's configuration for a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# as roles/deepspeed/templates/ds_config.json.j2 has them; a test holds the two together
_BUCKET = 500_000_000
_PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp16": {"enabled": True, "initial_scale_power": 16, "loss_scale_window": 1000},
    "bf16": {"enabled": True},
}


def build(
    *,
    micro: int,
    accumulation: int,
    world: int,
    stage: int,
    precision: str,
    clip: float,
    offload_optimizer: bool,
    offload_parameters: bool,
) -> dict[str, Any]:
    """Return the configuration for `world` ranks, without an optimizer; `clip` 0 is none.

    ValueError if the stage cannot take parameters off the device.
    """
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
        # DeepSpeed ends if the first is not the product of the others
        "train_batch_size": micro * accumulation * world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clip,
        "steps_per_print": 10,
        "zero_optimization": zero,
    }
    if precision in _PRECISIONS:
        config[precision] = dict(_PRECISIONS[precision])
    return config
