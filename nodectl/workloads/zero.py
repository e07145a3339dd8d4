"""DeepSpeed's ZeRO: optimizer (1), gradients (2) and parameters (3) shared out among the ranks, or in host memory."""

from __future__ import annotations

import importlib
import io
import logging
import os
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from nodectl.workloads import ds_config, parallel, ranks
    from nodectl.workloads.settings import Refused, Settings
    from nodectl.workloads.workload import Batch, Workload
else:  # on a node these files lie in one folder, without the package
    import ds_config
    import parallel
    import ranks
    from settings import Refused

_SCALER = "loss_scaler"


class Zero(parallel.Strategy):
    """Samples are shared as by DDP; what else is shared says the stage. Needs DeepSpeed, which steps the optimizer."""

    def __init__(self, workload: Workload, settings: Settings, group: ranks.Ranks, precision: str) -> None:
        self.workload, self.settings, self.group, self.precision = workload, settings, group, precision
        self.stage = int(settings.parallel[-1])
        config = configuration(settings, group.world_size, precision)
        deepspeed = _deepspeed(group.device)
        deepspeed.init_distributed(group.backend, dist_init_required=False)
        self.bare = workload.model(settings)
        self._prepare(self.bare)
        self._numbers = super().parameters  # before they are shared out
        if self.stage == 3:  # piece by piece: the device never holds the whole
            deepspeed.zero.Init(module=self.bare.to(self._dtype), config_dict_or_path=config)
        else:
            self.bare.to(group.device)
        self.model, self.optimizer, _, _ = deepspeed.initialize(
            model=self.bare,
            optimizer=parallel.make_optimizer(settings, self.bare.parameters()),
            config=config,
            dist_init_required=False,
        )
        self.scaler = parallel.make_scaler(enabled=False)  # DeepSpeed has its own

    @property
    def data_rank(self) -> int:
        """Its own rank."""
        return self.group.rank

    @property
    def data_size(self) -> int:
        """All ranks."""
        return self.group.world_size

    @property
    def parameters(self) -> int:
        """How many numbers the whole model has that are trained."""
        return self._numbers

    def gradients(self, parts: Sequence[Batch]) -> torch.Tensor:
        """Forward and backward of all micro-batches of a step; their mean loss on this rank, on its device."""
        samples = sum(len(part[0]) for part in parts)
        total = torch.zeros((), device=self.group.device)
        for number, part in enumerate(parts, start=1):
            # an epoch's last step may have fewer micro-batches than DeepSpeed counts
            self.model.set_gradient_accumulation_boundary(number == len(parts))
            loss = self.workload.loss(self.model(*self._cast(part[:-1])), part) * (len(part[0]) / samples)
            self.model.backward(loss * self.settings.accumulation)  # by which it divides
            total += loss.detach()
        return total

    def predict(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the model's answer without gradients, as it is now."""
        self.model.eval()
        with torch.no_grad():
            answer: torch.Tensor = self.model(*self._cast(inputs))
        self.model.train()
        return answer

    def _cast(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return inputs in the weights' precision: half precision is the model's own here, not autocast."""
        return [tensor.to(self._dtype) if tensor.is_floating_point() else tensor for tensor in inputs]

    @property
    def _dtype(self) -> torch.dtype:
        kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
        return kinds.get(self.precision, torch.float32)

    def step(self, lr: float) -> None:
        """Change the weights by the gradients, no longer than the limit, at this learning rate."""
        for parameter_group in self.optimizer.param_groups:
            parameter_group["lr"] = lr
        self.model.step()

    def state(self) -> dict[str, Any]:
        """Each rank's share, masters of the weights among it; every rank must call it."""
        share = io.BytesIO()
        torch.save(_plain(self.optimizer.state_dict()), share)
        shares = self.group.gather(share.getvalue())
        return {
            "zero": {"stage": self.stage, "shares": [ranks.to_tensor(rank_share) for rank_share in shares]},
            # DeepSpeed makes them of the masters for stage 3 only
            "model": self.bare.state_dict() if self.stage < 3 else {},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take what `state` gave to as many ranks of this stage; every rank must call it."""
        saved = state.get("zero") or {"stage": 0, "shares": []}
        if (saved["stage"], len(saved["shares"])) != (self.stage, self.group.world_size):
            was = f"ZeRO-{saved['stage']} on {len(saved['shares'])} ranks" if saved["stage"] else "no ZeRO"
            raise Refused(
                f"the checkpoint is of {was}, this is ZeRO-{self.stage} on {self.group.world_size}, and the shares do"
                " not fit: choose another --checkpoint-dir, or --no-resume to set it aside"
            )
        if self.stage < 3:
            self.bare.load_state_dict(state["model"])
        optimizer_state = self.optimizer.state_dict()
        shares = [torch.load(io.BytesIO(ranks.to_bytes(share)), weights_only=True) for share in saved["shares"]]
        vars(optimizer_state[_SCALER]).update(shares[self.group.rank].get(_SCALER, {}))
        whole = [
            {**optimizer_state, **{name: value for name, value in share.items() if name != _SCALER}} for share in shares
        ]
        self.optimizer.load_state_dict(whole, load_from_fp32_weights=True)


def configuration(settings: Settings, world_size: int, precision: str) -> dict[str, Any]:
    """DeepSpeed's configuration for these options; Refused with the rule."""
    stage = int(settings.parallel[-1])
    try:
        wanted = ds_config.build(
            micro=settings.batch,
            accumulation=settings.accumulation,
            world=world_size,
            stage=stage,
            precision=precision,
            clip=settings.clip,
            offload_optimizer=settings.offload != "none",
            offload_parameters=settings.offload == "parameters",
        )
    except ValueError as error:
        raise Refused(f"--parallel {settings.parallel}: {error}") from error
    return {**wanted, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def _deepspeed(device: torch.device) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    try:
        deepspeed = importlib.import_module("deepspeed")
    except ImportError as error:
        raise SystemExit(
            f"ZeRO is DeepSpeed's, which this Python cannot import ({error}): name a version in the stack and provision"
            " it, or take another --parallel"
        ) from error
    deepspeed.utils.logger.setLevel(logging.WARNING)
    if device.type == "cpu":  # it would compile for a minute, for ranks that all share one host
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _plain(value: Any) -> Any:
    """Tensors and plain values only, which are read back without running anything."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return _plain(vars(value))  # the loss scaler
