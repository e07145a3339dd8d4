"""A model that no rank has whole: its columns, layers or parameters lie shared out over many, by torch's own APIs.

A checkpoint is whole all the same, and as one of a single device: any layout can go on from it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from nodectl.workloads import layout, ranks
    from nodectl.workloads.decoder import Decoder
    from nodectl.workloads.parallel import Strategy
    from nodectl.workloads.ranks import Ranks
    from nodectl.workloads.settings import Settings
    from nodectl.workloads.workload import Workload
else:  # on a node these files lie in one folder, without the package
    import layout
    import ranks
    from parallel import Strategy

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError as error:
    raise SystemExit(
        f"--parallel fsdp2, --tensor and --stages need torch 2.7 (this is {torch.__version__}): "
        "take --parallel ddp or zero3, or a newer torch"
    ) from error


HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class AgreedScaler(torch.amp.GradScaler):  # type: ignore[misc]  # torch is not there where types are checked
    """torch's GradScaler for gradients of which each rank has its own part: all leave a step out, or none.

    `own_part` gives a gradient's part on this rank, to be changed in place.
    """

    def __init__(self, enabled: bool, device: torch.device, own_part: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__(device.type, enabled=enabled)
        self._own_part = own_part
        self._overflowed = False
        self.scale(torch.zeros((), device=device))  # a stage in the middle has no loss that would begin it

    def _unscale_grads_(self, optimizer: Any, inv_scale: torch.Tensor, found_inf: torch.Tensor, _: bool) -> Any:
        """Put the true gradients in place of the scaled; every rank must call it."""
        for parameter in (
            parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None
        ):
            part = self._own_part(parameter.grad)
            part.mul_(inv_scale.to(part.device))
            found_inf += (~torch.isfinite(part)).any().to(found_inf.device)
        dist.all_reduce(found_inf)
        self._overflowed = bool(found_inf.item() > 0)
        return {found_inf.device: found_inf}

    def step(self, optimizer: Any) -> None:
        """Take the optimizer's step, unless a gradient of any rank is not finite; a fused one takes no scale here."""
        if not self._overflowed:
            optimizer.step()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what `state_dict` gave; nothing of a training in another precision."""
        if state:
            super().load_state_dict(state)


class Sharded(Strategy):
    """FSDP2, tensor parallelism, or both; `layout` says over how many ranks each."""

    def __init__(self, workload: Workload, settings: Settings, group: Ranks, precision: str) -> None:
        self.layout = layout.of(settings, group.world_size)
        # neighbours share columns: they meet most often, and lie on one host
        sizes = (self.layout.stages, self.layout.data, self.layout.tensor)
        self.mesh = init_device_mesh(group.device.type, sizes, mesh_dim_names=("stage", "data", "tensor"))
        self._shards = settings.parallel == layout.SHARDED
        self._offloads = settings.offload == "parameters"
        self._names: list[str] = []  # of all parameters of the whole model, in their order
        self._parameters = 0
        super().__init__(workload, settings, group, precision)
        self.scaler = AgreedScaler(precision == "fp16", group.device, lambda gradient: settled(gradient)[0])

    @property
    def data_rank(self) -> int:
        """Return which share of the samples it has; ranks that have the same columns and layers have different ones."""
        return int(self.mesh.get_local_rank("data"))

    @property
    def data_size(self) -> int:
        """How many share the samples."""
        return self.layout.data

    @property
    def stage(self) -> int:
        """Return which part of the layers this rank has."""
        return int(self.mesh.get_local_rank("stage"))

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the whole model."""
        return self._parameters

    def _make(self) -> nn.Module:
        """Make the model without memory, if the workload tells each parameter's values: no rank holds it whole."""
        with torch.device("meta"):
            model = self.workload.model(self.settings)
        self._names = [name for name, weight in model.named_parameters() if weight.requires_grad]
        self._parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        name, first = next(iter(model.named_parameters()))
        knows = self.workload.values(self.settings, name, first.shape) is not None
        if not knows:
            model = self.workload.model(self.settings)
        if self.layout.stages > 1:
            model.keep(self.stage, self.layout.stages)
        if self.layout.tensor > 1:
            split_matrices(model, self.mesh["tensor"])
        self._prepare(model)
        if self._shards:
            self._share_out(model)
        if knows:
            model.to_empty(device="cpu" if self._offloads else self.group.device)
            for name, parameter in model.named_parameters():
                values = self.workload.values(self.settings, name, parameter.shape)
                assert values is not None  # noqa: S101 (it was asked above)
                put(parameter, values)
        return model if self._offloads else model.to(self.group.device)

    def _share_out(self, model: nn.Module) -> None:
        pinned = self.group.device.type == "cuda"
        kind = HALVES.get(self.precision)
        how = {
            "mesh": self.mesh["data"],
            "mp_policy": MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=kind and torch.float32),
            "offload_policy": CPUOffloadPolicy(pin_memory=pinned) if self._offloads else OffloadPolicy(),
        }
        for block in self.workload.blocks(model):
            fully_shard(block, **how)
        fully_shard(model, **how)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return None with FSDP2, which gathers parameters in the precision that they are used in."""
        nothing: AbstractContextManager[Any] = nullcontext()
        return nothing if self._shards else super().autocast()

    def _meeting(self, *, last: bool) -> Any:
        if self._shards:
            self.model.set_requires_gradient_sync(last)
        return super()._meeting(last=last)

    def _clip(self, limit: float) -> None:
        """Clip by the norm over all ranks; what lies on several of them counts once."""
        gradients = [settled(parameter.grad) for parameter in self.model.parameters() if parameter.grad is not None]
        norms = [torch.linalg.vector_norm(local.detach().float()) for local, _ in gradients]
        copies = self.layout.data * self.layout.tensor
        shares = [shards / copies for _, shards in gradients]
        squares = torch.stack(norms).to(self.group.device) ** 2 * torch.tensor(shares, device=self.group.device)
        total = squares.sum()
        dist.all_reduce(total)
        factor = torch.clamp(limit / (total.sqrt() + 1e-6), max=1.0)
        for local, _ in gradients:
            local.mul_(factor.to(local.device))

    def state(self) -> dict[str, Any]:
        """Whole on rank 0, and empty on the others."""
        local_state: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
        for name, value in self.bare.state_dict().items():
            local_state["model"][name] = self._whole(value)
        for name, parameter in self._trained():
            moments = self.optimizer.state.get(parameter, {})
            local_state["optimizer"][name] = {key: self._whole(value) for key, value in moments.items()}
        everything = self._collected(local_state)
        if everything is None:
            return {}
        order = {name: number for number, name in enumerate(self._names)}
        state = {order[name]: moments for name, moments in everything["optimizer"].items() if moments}
        groups = [{**self.optimizer.state_dict()["param_groups"][0], "params": list(order.values())}]
        return {
            "model": everything["model"],
            "optimizer": {"state": state, "param_groups": groups},
            "scaler": self.scaler.state_dict(),
        }

    def _whole(self, value: Any) -> Any:
        """Every rank must call it; only rank 0 keeps what comes out, and the first ranks of the other stages."""
        full = value.full_tensor() if isinstance(value, DTensor) else value
        if self.data_rank or self.mesh.get_local_rank("tensor"):
            return None
        return full.detach().to("cpu", copy=True) if isinstance(full, torch.Tensor) else full

    def _collected(self, local_state: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]] | None:
        if self.data_rank or self.mesh.get_local_rank("tensor"):
            return None
        a_stage = self.layout.data * self.layout.tensor
        if self.stage > 0:
            file = io.BytesIO()
            torch.save(local_state, file)
            send(file.getvalue(), 0, self.group)
            return None
        for stage in range(1, self.layout.stages):
            part = torch.load(io.BytesIO(receive(stage * a_stage, self.group)), weights_only=True)
            for what, named in part.items():
                local_state[what].update(named)
        return local_state

    def load(self, state: dict[str, Any]) -> None:
        """Every rank takes its own of what `state` gave, or what a single device saved."""
        with torch.no_grad():
            for name, value in self.bare.state_dict().items():
                put(value, state["model"][name])
        order = {name: number for number, name in enumerate(self._names)}
        saved = state["optimizer"]["state"]
        optimizer_state = self.optimizer.state_dict()
        moments = {
            number: {key: like(parameter, value) for key, value in saved[order[name]].items()}
            for number, (name, parameter) in enumerate(self._trained())
            if order[name] in saved
        }
        group = {**state["optimizer"]["param_groups"][0], "params": optimizer_state["param_groups"][0]["params"]}
        self.optimizer.load_state_dict({"state": moments, "param_groups": [group]})
        self.scaler.load_state_dict(state["scaler"])

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, parameter) for name, parameter in self.bare.named_parameters() if parameter.requires_grad)


def split_matrices(model: Decoder, mesh: Any) -> None:
    """Share the parameters among the ranks of `mesh` (tensor parallelism); between matrices the sequence is shared.

    Of each pair of matrices the first gives columns (whole heads) and the second takes them as rows, so that ranks meet
    twice a layer and direction; norms work on the own part of the sequence (Korthikanti et al., 2022).
    """
    ends = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, {name: style for name, style in ends.items() if getattr(model, name) is not None})
    for block in model.layers.values():
        parallelize_module(block, mesh, _layer(block))


def _layer(block: nn.Module) -> dict[str, Any]:
    first = {name: ColwiseParallel() for name in ("attention.query", "attention.key", "attention.value")}
    first.update({f"mlp.{name}": ColwiseParallel() for name in ("gate", "up") if hasattr(block.mlp, name)})
    return {
        "attention_norm": SequenceParallel(),
        "mlp_norm": SequenceParallel(),
        # the second is the table of rotations, which every rank has
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        **first,
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }


def settled(gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return what this rank has of a gradient, to be changed in place, and over how many ranks it is shared out."""
    if not isinstance(gradient, DTensor):
        return gradient, 1
    shards = 1
    for placement, size in zip(gradient.placements, gradient.device_mesh.shape):  # noqa: B905 (Python 3.8 knows no strict)
        shards *= 1 if isinstance(placement, Replicate) else size
    return gradient.to_local(), shards


def put(target: torch.Tensor, values: torch.Tensor) -> None:
    """Write the own part of whole `values` into a parameter or buffer."""
    with torch.no_grad():
        local_part = target.to_local() if isinstance(target, DTensor) else target
        local_part.copy_(own_part(target, values))


def like(target: torch.Tensor, values: Any) -> Any:
    """Return `values` as they lie for `target`: the own part of what has its shape; anything else as it is."""
    if not isinstance(target, DTensor) or not isinstance(values, torch.Tensor) or values.shape != target.shape:
        return values
    part = own_part(target, values).to(target.to_local().device, copy=True)
    how = {"shape": target.shape, "stride": target.stride(), "run_check": False}
    return DTensor.from_local(part, target.device_mesh, target.placements, **how)


def own_part(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of whole `values` that lie as `target` does; nothing is sent."""
    if not isinstance(target, DTensor):
        return values
    places = list(zip(target.placements, target.device_mesh.get_coordinate(), target.device_mesh.shape))  # noqa: B905 (Python 3.8 knows no strict)
    # FSDP2 shares out what tensor parallelism has left, though its axis of the mesh stands first
    for placement, place, size in sorted(places, key=lambda each: isinstance(each[0], _StridedShard)):
        if not isinstance(placement, Replicate):
            chunks = values.chunk(size, dim=placement.dim)
            values = chunks[place] if place < len(chunks) else values.narrow(placement.dim, 0, 0)
    return values


def send(data: bytes, rank: int, group: Ranks) -> None:
    """Send bytes to a rank that calls `receive`; by tensors, since NCCL carries nothing else."""
    dist.send(torch.tensor([len(data)], dtype=torch.int64, device=group.device), rank)
    dist.send(ranks.to_tensor(data).to(group.device), rank)


def receive(rank: int, group: Ranks) -> bytes:
    """Return what that rank sends."""
    size = torch.zeros(1, dtype=torch.int64, device=group.device)
    dist.recv(size, rank)
    block = torch.empty(int(size.item()), dtype=torch.uint8, device=group.device)
    dist.recv(block, rank)
    return ranks.to_bytes(block)
