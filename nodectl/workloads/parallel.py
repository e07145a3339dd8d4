"""How one model is trained by many ranks: who has which samples, when gradients meet, what a checkpoint holds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils import checkpoint

    from nodectl.workloads import compression, layout
    from nodectl.workloads.ranks import Ranks
    from nodectl.workloads.settings import Refused, Settings
    from nodectl.workloads.workload import Batch, Workload
else:  # on a node these files lie in one folder, without the package
    import compression
    import layout
    from pytorch import DistributedDataParallel, checkpoint, nn, torch
    from settings import Refused


class Strategy:
    """One rank that has the whole model and all samples; what others do otherwise, they override.

    `model` is what is called, `bare` the workload's own; `data_rank` of `data_size` says which share of the samples.
    """

    def __init__(self, workload: Workload, settings: Settings, group: Ranks, precision: str) -> None:
        self.workload, self.settings, self.group, self.precision = workload, settings, group, precision
        self.bare = self._make()
        self.model = self._wrap(self.bare)
        self.optimizer = make_optimizer(settings, self.model.parameters())
        self.scaler = make_scaler(enabled=precision == "fp16")

    @property
    def data_rank(self) -> int:
        """Return which of the `data_size` shares of the samples this rank has."""
        return 0

    @property
    def data_size(self) -> int:
        """Among how many the samples are shared."""
        return 1

    @property
    def compression(self) -> dict[str, Any] | None:
        """Return what a rank sends of its gradients a step; None if that is not counted."""
        return None

    def _make(self) -> nn.Module:
        model = self.workload.model(self.settings).to(self.group.device)
        self._prepare(model)
        return model

    def _prepare(self, model: nn.Module) -> None:
        if self.settings.recompute != "none":
            for block in self.workload.blocks(model):
                block.forward = _recomputed(block.forward)
        if self.settings.compile:
            compile_blocks(self.workload.blocks(model))

    def _wrap(self, model: nn.Module) -> nn.Module:
        return model

    @property
    def notice(self) -> str:
        """Return what somebody should know before it begins; empty if there is nothing."""
        return ""

    @property
    def parameters(self) -> int:
        """How many numbers the whole model has that are trained."""
        return sum(parameter.numel() for parameter in self.bare.parameters() if parameter.requires_grad)

    def gradients(self, parts: Sequence[Batch]) -> torch.Tensor:
        """Forward and backward of all micro-batches of a step; their mean loss on this rank, on its device."""
        self.optimizer.zero_grad(set_to_none=True)
        samples = sum(len(part[0]) for part in parts)
        total = torch.zeros((), device=self.group.device)
        for number, part in enumerate(parts, start=1):
            with self._meeting(last=number == len(parts)):
                with self.autocast():
                    answer = self.model(*part[:-1])
                loss = self.workload.loss(answer, part) * (len(part[0]) / samples)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _meeting(self, *, last: bool) -> AbstractContextManager[Any]:
        """Around a backward pass; gradients need not meet before the last of a step."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the precision of the forward pass."""
        dtype = torch.float16 if self.precision == "fp16" else torch.bfloat16
        autocast: AbstractContextManager[Any] = torch.autocast(
            self.group.device.type, dtype=dtype, enabled=self.precision in ("fp16", "bf16")
        )
        return autocast

    def step(self, lr: float) -> None:
        """Change the weights by the gradients, no longer than the limit, at this learning rate."""
        for parameter_group in self.optimizer.param_groups:
            parameter_group["lr"] = lr
        self.scaler.unscale_(self.optimizer)  # the limit is meant for the true gradients
        if self.settings.clip:
            self._clip(self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _clip(self, limit: float) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), limit)

    def mean_loss(self, loss: torch.Tensor) -> float:
        """Return the mean over all samples of a step, the same on every rank; every rank must call it."""
        return self.group.mean(loss)

    def predict(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the model's answer without gradients, as it is now."""
        self.model.eval()
        with torch.no_grad(), self.autocast():
            answer: torch.Tensor = self.model(*inputs)
        self.model.train()
        return answer

    def state(self) -> dict[str, Any]:
        """Model, optimizer and scaler, whole; every rank must call it."""
        return {
            "model": self.bare.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take what `state` gave; every rank must call it."""
        self.bare.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])


class OneProcess(Strategy):
    """All GPUs of a host by one process (nn.DataParallel): here to show what it costs beside a rank a GPU."""

    def _wrap(self, model: nn.Module) -> nn.Module:
        wrapped: nn.Module = nn.DataParallel(model)
        return wrapped


class Replicas(Strategy):
    """The whole model on every rank, gradients averaged while the backward pass runs (DistributedDataParallel)."""

    @property
    def data_rank(self) -> int:
        """Its own rank."""
        return self.group.rank

    @property
    def data_size(self) -> int:
        """All ranks."""
        return self.group.world_size

    def _wrap(self, model: nn.Module) -> nn.Module:
        settings, device = self.settings, self.group.device
        wrapped: nn.Module = DistributedDataParallel(
            model,
            device_ids=[self.group.local_rank] if device.type == "cuda" else None,
            # given, it is the first part's size, too
            **({} if settings.bucket_mb is None else {"bucket_cap_mb": settings.bucket_mb}),
            gradient_as_bucket_view=settings.bucket_view,
        )
        try:
            compression.check(settings, self.data_size, self.precision)
        except ValueError as error:
            raise Refused(str(error)) from error
        self._compressor = None
        if settings.compress != "none":
            self._compressor = compression.Compressor(settings, list(model.parameters()), device)
            self._compressor.register(wrapped)
        return wrapped

    @property
    def compression(self) -> dict[str, Any] | None:
        """Return what was sent, and how much more it would have been without compression."""
        if self._compressor is not None:
            return self._compressor.summary()
        trained = [parameter for parameter in self.bare.parameters() if parameter.requires_grad]
        size_bytes = sum(parameter.numel() * parameter.element_size() for parameter in trained)
        return compression.uncompressed(size_bytes, self.data_size)

    def state(self) -> dict[str, Any]:
        """Return it with what each rank's compression kept back."""
        kept = [] if self._compressor is None else self._compressor.states()
        return {**super().state(), "compression": kept}

    def load(self, state: dict[str, Any]) -> None:
        """Take what `state` gave, with what compression kept back."""
        super().load(state)
        kept = state.get("compression")
        if self._compressor is not None and kept:
            self._compressor.load(kept)

    def _meeting(self, *, last: bool) -> AbstractContextManager[Any]:
        silent: AbstractContextManager[Any] = nullcontext() if last else self.model.no_sync()
        return silent


def _recomputed(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    # it keeps its inputs alone, and is computed again in the backward pass
    def recomputed(*arguments: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = checkpoint.checkpoint(forward, *arguments, use_reentrant=False)
        return answer

    return recomputed


def compile_blocks(blocks: Sequence[nn.Module]) -> None:
    """Compile each of these layers in its place: equal ones share their code. SystemExit where this torch cannot."""
    for block in blocks:
        if not hasattr(block, "compile"):
            raise SystemExit(
                f"--compile needs torch 2.3 (this is {torch.__version__}): leave it out, or take a newer torch"
            )
        block.compile()


# by name, when it is asked for: some stand on this module, and need a newer torch
_STRATEGIES = {
    "single": ("parallel", "Strategy"),
    "dataparallel": ("parallel", "OneProcess"),
    "ddp": ("parallel", "Replicas"),
    **dict.fromkeys(("zero1", "zero2", "zero3"), ("zero", "Zero")),
    layout.SHARDED: ("sharded", "Sharded"),
}
NAMES = ("auto", *_STRATEGIES)
RECOMPUTED = ("none", "full")


def check(workload: Workload, settings: Settings, world_size: int) -> str:
    """Return the strategy's name; Refused with the rule that so many ranks or this mix of options break."""
    name = settings.parallel
    if name == "auto":
        copies = world_size // (settings.tensor * settings.stages)
        several = layout.SHARDED if settings.tensor > 1 and copies > 1 else "ddp"
        name = several if world_size > 1 else "single"
    try:
        layout.check(name, settings, world_size, workload.divisible(settings))
    except ValueError as error:
        raise Refused(str(error)) from error
    if settings.compress != "none" and name != "ddp":
        raise Refused(
            f"--compress {settings.compress} is for gradients that ranks send each other by ddp: this is {name}, with "
            f"{world_size} of them"
        )
    if settings.parallel == "auto":
        return name
    if name in ("single", "dataparallel") and world_size > 1:
        raise Refused(
            f"--parallel {name} is one process, and there are {world_size} ranks, which would each train a model of"
            " their own: start one, or take --parallel ddp"
        )
    if name not in ("single", "dataparallel") and world_size == 1:
        raise Refused(
            f"--parallel {name} shares a training among ranks, and this is the only one: start it by torchrun"
        )
    return name


def make(name: str, workload: Workload, settings: Settings, group: Ranks, precision: str) -> Strategy:
    """Return the strategy of that name, as `check` gave it; Refused where the options break a rule of its own."""
    module, kind = _STRATEGIES[layout.SHARDED if settings.tensor > 1 else name]
    if settings.stages > 1:
        module, kind = "pipeline", "Pipeline"
    made = getattr(importlib.import_module(module), kind)
    strategy: Strategy = made(workload, replace(settings, parallel=name), group, precision)
    return strategy


def make_optimizer(settings: Settings, parameters: Any) -> Any:
    """Return what changes these weights."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[settings.optimizer]
    more: dict[str, Any] = {"momentum": settings.momentum} if settings.optimizer == "sgd" else {}
    if settings.fused:
        more["fused"] = True
    return kind(parameters, lr=settings.lr, weight_decay=settings.weight_decay, **more)


def make_scaler(*, enabled: bool) -> Any:
    """Return what keeps fp16's small gradients; not enabled, it hands everything on."""
    # torch.amp has it since 2.3
    return (
        torch.amp.GradScaler("cuda", enabled=enabled)
        if hasattr(torch.amp, "GradScaler")
        else (torch.cuda.amp.GradScaler(enabled=enabled))
    )
