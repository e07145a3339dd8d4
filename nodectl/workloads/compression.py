"""Gradients made smaller before they are sent: communication hooks for DDP, which count what they send.

What a hook does depends on a parameter and not on the bucket it lies in: DDP puts its buckets in another order after
the first step, and a resumed training begins with the first order again. torch's own PowerSGD hook keeps its state by
bucket, needs numpy, and starts collectives from callbacks, whose order over gloo may differ between ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from nodectl.workloads.settings import LOSSY, Settings
else:  # on a node these files lie in one folder, without the package
    from pytorch import dist, torch
    from settings import LOSSY

_HALVES = {"fp16": "float16", "bf16": "bfloat16"}
# an index and a value
_ENTRY_BYTES = 8
# so many times less is sent of a matrix, or it goes as it is
_LEAST_GAIN = 2


def check(how: Settings, world_size: int, precision: str) -> None:
    """Raise ValueError, with the rule, if the compression cannot be or would send more than none."""
    if how.compress in LOSSY and how.error_feedback and precision == "fp16":
        raise ValueError(
            f"--compress {how.compress} with error feedback cannot go with --precision fp16: its loss scale changes, "
            "and what was kept back would be in the old scale; use bf16, or --no-error-feedback"
        )
    if how.compress == "topk" and not 0 < how.compress_ratio < 1:
        raise ValueError(f"--compress-ratio {how.compress_ratio:g}: a share between 0 and 1")
    if how.compress == "topk" and how.compress_ratio * world_size >= 1:
        raise ValueError(
            f"--compress-ratio {how.compress_ratio:g} over {world_size} ranks sends more than no compression: every "
            f"rank gets every other's entries of {_ENTRY_BYTES} bytes; it must be below 1/{world_size}"
        )


class Compressor:
    """A communication hook over `parameters`, which have the same order on every rank."""

    def __init__(self, how: Settings, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        self.how, self.device = how, device
        self.world_size = dist.get_world_size()
        self.sent_bytes = self.plain_bytes = self.steps = 0
        self._numbers = {parameter: number for number, parameter in enumerate(parameters)}
        # what was kept back of a parameter's gradients, as they lie in the bucket, and PowerSGD's last Q
        self._errors: dict[int, torch.Tensor] = {}
        self._bases: dict[int, torch.Tensor] = {}
        on_gpu = device.type == "cuda"
        # a GPU's collectives queue in the order of the calls; on a CPU one thread sees to that, in a group of its own
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._thread = ThreadPoolExecutor(1, "compression")
        self._group = None if on_gpu else dist.new_group()
        self._exchange = {"topk": self._sparse, "powersgd": self._low_rank}.get(how.compress, self._half)

    def register(self, model: DistributedDataParallel) -> None:
        """Have `model` send its gradients through this."""
        # DDP reads a hook's annotations, and refuses those that are text
        model.register_comm_hook(None, lambda _, bucket: self._begin(bucket))

    def summary(self) -> dict[str, Any]:
        """Return what was sent by this rank, a step, and how many times more it would have been without."""
        steps = max(1, self.steps)
        return {
            "kind": self.how.compress,
            "error_feedback": self.how.compress in LOSSY and self.how.error_feedback,
            "bytes_per_step": round(self.sent_bytes / steps),
            "plain_bytes_per_step": round(self.plain_bytes / steps),
            "ratio": round(self.plain_bytes / self.sent_bytes, 3) if self.sent_bytes else None,
        }

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the next step depends on, of this rank alone."""
        kept = {f"error.{number}": error for number, error in self._errors.items()}
        return {**kept, **{f"basis.{number}": basis for number, basis in self._bases.items()}}

    def states(self) -> list[dict[str, torch.Tensor]]:
        """All ranks' `state` on the first of them, on the CPU, and nothing on the others; every rank must call it."""
        local_state = self.state()
        first = dist.get_rank() == 0
        gathered: list[dict[str, torch.Tensor]] = [{} for _ in range(self.world_size if first else 0)]
        for name in sorted(local_state):
            # one after the other: all at once could be more than a GPU has left
            parts = [torch.empty_like(local_state[name]) for _ in range(self.world_size)]
            dist.all_gather(parts, local_state[name].contiguous())
            for rank in range(len(gathered)):
                gathered[rank][name] = parts[rank].cpu()
        return gathered

    def load(self, states: Sequence[dict[str, torch.Tensor]]) -> None:
        """Go on from all ranks' `state`; another number of ranks shares what was kept back."""
        if len(states) == self.world_size:
            rank_state = states[dist.get_rank()]
        else:
            rank_state = {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
        for name, value in rank_state.items():
            what, number = name.split(".")
            # no alias of what was read, which is shared
            (self._errors if what == "error" else self._bases)[int(number)] = value.to(self.device, copy=True)

    def _begin(self, bucket: Any) -> Any:
        """Return a future of the bucket's mean over all ranks; the backward pass goes on meanwhile."""
        self.steps += bucket.index() == 0
        self.plain_bytes += self._reduced_bytes(bucket.buffer().numel() * bucket.buffer().element_size())
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self._stream):
                on_gpu: Any = torch.futures.Future(devices=[self.device])
                self._mean_of(bucket)
                on_gpu.set_result(bucket.buffer())
            return on_gpu
        future: Any = torch.futures.Future()
        self._thread.submit(self._answer, bucket, future)
        return future

    def _answer(self, bucket: Any, future: Any) -> None:
        try:
            self._mean_of(bucket)
        except Exception as error:  # it belongs to who waits for the gradients
            future.set_exception(error)
        else:
            future.set_result(bucket.buffer())

    def _mean_of(self, bucket: Any) -> None:
        with torch.no_grad():
            self._exchange(bucket)

    def _all_reduce(self, tensor: torch.Tensor) -> None:
        self.sent_bytes += self._reduced_bytes(tensor.numel() * tensor.element_size())
        dist.all_reduce(tensor, group=self._group)

    def _reduced_bytes(self, size_bytes: int) -> int:
        return reduced_bytes(size_bytes, self.world_size)

    def _half(self, bucket: Any) -> None:
        buffer = bucket.buffer()
        # divided first: the sum could be more than a float16 holds
        half = buffer.to(getattr(torch, _HALVES[self.how.compress])).div_(self.world_size)
        self._all_reduce(half)
        buffer.copy_(half)

    def _sparse(self, bucket: Any) -> None:
        buffer = bucket.buffer()
        # by parameters, in the order of memory
        parts = buffer.split([parameter.numel() for parameter in bucket.parameters()])
        if self.how.error_feedback:
            for place, number in self._numbers_in(bucket):
                if number in self._errors:
                    parts[place].add_(self._errors[number])
        places, begin = [], 0
        for part in parts:
            count = max(1, round(self.how.compress_ratio * part.numel()))
            places.append(torch.topk(part.abs(), count, sorted=False).indices + begin)
            begin += part.numel()
        chosen = torch.cat(places)
        values = buffer[chosen]
        if self.how.error_feedback:
            buffer[chosen] = 0
            for place, number in self._numbers_in(bucket):
                # a copy: a view would hold the whole bucket
                self._errors[number] = parts[place].clone()
        own = torch.stack((chosen.to(torch.int32), values.div_(self.world_size).float().view(torch.int32)))
        self.sent_bytes += (self.world_size - 1) * own.numel() * own.element_size()
        gathered = [torch.empty_like(own) for _ in range(self.world_size)]
        dist.all_gather(gathered, own, group=self._group)
        buffer.zero_()
        # in the order of ranks: every rank gets the same sum to the last bit
        for given in gathered:
            buffer.index_add_(0, given[0].long(), given[1].view(torch.float32).to(buffer.dtype))

    def _numbers_in(self, bucket: Any) -> Iterator[tuple[int, int]]:
        return enumerate(self._numbers[parameter] for parameter in bucket.parameters())

    def _low_rank(self, bucket: Any) -> None:
        """PowerSGD (Vogels et al. 2019): of each matrix M the mean of M Q, orthogonal, times the mean of its M^T P."""
        gradients = bucket.gradients()
        matrices, rest = {}, []
        for place, number in self._numbers_in(bucket):
            gradient = gradients[place]
            rows = gradient.shape[0] if gradient.dim() > 1 and gradient.is_contiguous() else 1
            columns = gradient.numel() // rows
            if _LEAST_GAIN * (rows + columns) * self.how.compress_rank <= rows * columns:
                matrices[number] = gradient.view(rows, columns)
            else:
                rest.append(gradient)
        for number, matrix in matrices.items():
            if self.how.error_feedback and number in self._errors:
                matrix.add_(self._errors[number])
            if number not in self._bases:
                random = torch.Generator().manual_seed(number)
                basis = torch.randn(matrix.shape[1], self.how.compress_rank, generator=random)
                self._bases[number] = torch.linalg.qr(basis).Q.to(matrix.device, matrix.dtype)
        lefts = {number: matrix @ self._bases[number] for number, matrix in matrices.items()}
        self._mean_together([*lefts.values(), *rest])
        for number, matrix in matrices.items():
            lefts[number] = torch.linalg.qr(lefts[number].float()).Q.to(matrix.dtype)
            self._bases[number] = matrix.t() @ lefts[number]
        self._mean_together([self._bases[number] for number in matrices])
        for number, matrix in matrices.items():
            sent = lefts[number] @ self._bases[number].t()
            if self.how.error_feedback:
                self._errors[number] = matrix - sent
            matrix.copy_(sent)

    def _mean_together(self, tensors: Sequence[torch.Tensor]) -> None:
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors]).div_(self.world_size)
        self._all_reduce(flat)
        for tensor in tensors:
            mean, flat = flat[: tensor.numel()], flat[tensor.numel() :]
            tensor.copy_(mean.view_as(tensor))


def reduced_bytes(size_bytes: int, world_size: int) -> int:
    """Return what a rank sends in a ring: its share of everything, once to sum and once to spread."""
    return 2 * (world_size - 1) * size_bytes // world_size


def uncompressed(size_bytes: int, world_size: int) -> dict[str, Any]:
    """Return the summary of a training that sends so many bytes of gradients a step as they are."""
    sent_bytes = reduced_bytes(size_bytes, world_size)
    return {"kind": "none", "bytes_per_step": sent_bytes, "plain_bytes_per_step": sent_bytes, "ratio": 1.0}
