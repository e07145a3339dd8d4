"""A model whose layers are shared among ranks: micro-batches pass them one behind another, by torch's schedules."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from nodectl.workloads.sharded import HALVES, Sharded
    from nodectl.workloads.workload import Batch
else:  # on a node these files lie in one folder, without the package
    from sharded import HALVES, Sharded

try:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    # an older one, 2.7 among them, would join all logits of a step
    if "return_outputs" not in inspect.signature(ScheduleGPipe.step).parameters:
        raise ImportError
except ImportError as error:
    raise SystemExit(
        f"--stages needs a torch whose pipelines keep no outputs, as 2.13 does (this is {torch.__version__}): "
        "take a newer torch, or --parallel fsdp2"
    ) from error


class Pipeline(Sharded):
    """Stages of equal numbers of layers, beside FSDP2, tensor parallelism or copies (DistributedDataParallel)."""

    def _wrap(self, model: nn.Module) -> nn.Module:
        self._pipes: dict[tuple[int, ...], Any] = {}
        if not self._shards and self.precision in HALVES:
            # not around the step: the backward pass runs within it
            model.forward = torch.autocast(self.group.device.type, dtype=HALVES[self.precision])(model.forward)
        if self._shards or self.layout.data == 1:
            return model
        on_gpu = self.group.device.type == "cuda"
        devices = [self.group.local_rank] if on_gpu else None
        copies = self.mesh.get_group("data")
        wrapped: nn.Module = DistributedDataParallel(model, device_ids=devices, process_group=copies)
        return wrapped

    @property
    def notice(self) -> str:
        """How long stages wait for each other, where that is more than half of the time."""
        stages, parts = self.layout.stages, self.settings.accumulation
        if parts >= stages:
            return ""
        idle = (stages - 1) / (parts + stages - 1)  # by both schedules
        return (
            f"--accumulation {parts} gives fewer micro-batches than there are stages ({stages}): each stage is idle "
            f"for {idle:.0%} of a step, (p - 1) / (m + p - 1), and the schedule is gpipe; take at least {stages}, "
            f"better {4 * stages}"
        )

    @property
    def _is_last(self) -> bool:
        return self.stage == self.layout.stages - 1

    def gradients(self, parts: Sequence[Batch]) -> torch.Tensor:
        """All micro-batches through all stages and back; the mean loss, which only the last stage knows, else 0."""
        self.optimizer.zero_grad(set_to_none=True)
        inputs, targets = (torch.cat(tensors) for tensors in zip(*parts))  # noqa: B905 (Python 3.8 knows no strict)
        # a last step of an epoch may have a smaller part: then all are cut as small
        size = math.gcd(*(len(part[0]) for part in parts)) if len(parts) > 1 else len(inputs)
        number, shape = len(inputs) // size, (size, *inputs.shape[1:])
        key = (number, *shape)
        if key not in self._pipes:
            # 1F1B needs at least as many micro-batches as stages
            kind = ScheduleGPipe if number < self.layout.stages else Schedule1F1B
            self._pipes[key] = kind(self._stage_of(shape), number, self._part_of_loss(number), scale_grads=False)
        self._losses: list[torch.Tensor] = []
        given: dict[str, Any] = {"target": targets} if self._is_last else {}
        self._pipes[key].step(*([inputs] if self.stage == 0 else []), **given, return_outputs=False)
        return torch.stack(self._losses).sum() if self._is_last else torch.zeros((), device=self.group.device)

    def mean_loss(self, loss: torch.Tensor) -> float:
        """Return the loss averaged over the ranks that compute it."""
        return self.group.mean(loss) * self.layout.stages

    def _stage_of(self, shape: tuple[int, ...]) -> Any:
        """Return what comes in and goes out is told beforehand: torch's way to find out needs numpy."""
        tokens = torch.empty(shape, dtype=torch.int64, device="meta")
        rows, length = shape
        sizes = self.bare.sizes
        own_length = length // self.layout.tensor
        half = HALVES.get(self.precision, torch.float32)
        kind = half if self._shards else torch.float32
        between = torch.empty(rows, own_length, sizes.hidden, dtype=kind, device="meta", requires_grad=True)
        logits = torch.empty(rows, length, sizes.vocabulary, dtype=half, device="meta", requires_grad=True)
        return PipelineStage(
            self.model,
            self.stage,
            self.layout.stages,
            self.group.device,
            input_args=(tokens if self.stage == 0 else between,),
            output_args=(logits if self._is_last else between,),
            group=self.mesh.get_group("stage"),
        )

    def _part_of_loss(self, number: int) -> Any:
        def part(answer: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss = self.workload.loss(answer, (targets,)) / number
            self._losses.append(loss.detach())
            return self.scaler.scale(loss)

        return part
