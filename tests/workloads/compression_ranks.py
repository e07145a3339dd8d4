"""Two ranks of a small DDP training with each compression; the first prints what came of it as JSON.

Run by a Python that has torch, with nodectl/workloads on its path, in a network namespace of its own where bytes are
to be counted. The second rank is a fork: torch is imported once.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

# on a node these files lie in one folder, without the package
import options  # type: ignore[import-not-found]
import ranks  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from compression import Compressor, check  # type: ignore[import-not-found]
from feed import Feed  # type: ignore[import-not-found]
from program import Training  # type: ignore[import-not-found]
from settings import Settings  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformer import Transformer  # type: ignore[import-not-found]

TINY = ("--d-model=32", "--layers=1", "--heads=2", "--seq=4", "--samples=64", "--batch=4", "--device=cpu", "--lr=0.01")
WIDTH, BATCH = 256, 32
STEPS = 24
KINDS = {
    "fp16": Settings(compress="fp16"),
    "bf16": Settings(compress="bf16"),
    "powersgd": Settings(compress="powersgd", compress_rank=8),
    "topk": Settings(compress="topk", compress_ratio=0.05),
}


def trainer(how: Any, model: nn.Module, lr: float) -> tuple[Any, Any, Any]:
    """The wrapped model, its optimiser, and the compressor, None for DDP as it is."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.1)
    compressor = None
    if how is not None:
        compressor = Compressor(how, list(model.parameters()), torch.device("cpu"))
        compressor.register(wrapped)
    return wrapped, torch.optim.SGD(model.parameters(), lr=lr), compressor


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)
    )


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of a few directions, so that gradients have a low rank, and what a fixed map makes of them."""
    random = torch.Generator().manual_seed(1)
    few = torch.randn(16, WIDTH, generator=random) / 4
    out = torch.randn(16, WIDTH, generator=random) / 4
    codes = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(2 + 2 * step + rank))
    return codes @ few, codes @ out


def train(wrapped: Any, optimizer: Any, begin: int, end: int, rank: int) -> float:
    loss = torch.zeros(())
    for step in range(begin, end):
        inputs, targets = batch(step, rank)
        loss = nn.functional.mse_loss(wrapped(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return float(loss.item()) / 2


def loopback_bytes() -> int:
    """What the loopback device of this network namespace has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[9])


def course(how: Any, rank: int) -> dict[str, Any]:
    """Loss before and after, what was counted, and what the device sent between."""
    wrapped, optimizer, compressor = trainer(how, net(), 8.0)
    first = train(wrapped, optimizer, 0, 1, rank)
    dist.barrier()
    before = loopback_bytes()
    last = train(wrapped, optimizer, 1, STEPS, rank)
    dist.barrier()
    told = {"first": first, "last": last, "wire_per_step": (loopback_bytes() - before) / 2 / (STEPS - 1)}
    return {**told, **({} if compressor is None else compressor.summary())}


class Eight(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
    """Eight numbers: the first has a large gradient that cancels out over two steps, those of the others lead to 3."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.zeros(8))

    def forward(self, sign: int) -> torch.Tensor:
        loss: torch.Tensor = 10 * sign * self.numbers[0] + 0.5 * (self.numbers[1:] - 3).square().sum()
        return loss


def eight(feedback: bool) -> float:
    """How far the worst of them is from 3 when one of eight is sent."""
    wrapped, optimizer, _ = trainer(
        Settings(compress="topk", compress_ratio=0.125, error_feedback=feedback), Eight(), 0.02
    )
    for step in range(300):
        optimizer.zero_grad()
        wrapped(1 - 2 * (step % 2)).backward()
        optimizer.step()
    return float((wrapped.module.numbers[1:] - 3).abs().max().item())


def refused(how: Any, world_size: int, precision: str = "fp32") -> str:
    try:
        check(how, world_size, precision)
    except ValueError as error:
        return str(error)
    return ""


def training(rank: int, *arguments: str) -> Any:
    """The transformer's, as its program makes it."""
    group = ranks.Ranks(rank, 2, rank, torch.device("cpu"), "gloo", ("here", "here"))
    workload = Transformer()
    # a batch that follows the throughput has a start of its own
    tiny = [each for each in TINY if not each.startswith("--batch") or "--dynamic-batch" not in arguments]
    return Training(workload, options.parse(workload, [*tiny, *arguments]), group)


def steps(made: Any, count: int) -> list[float]:
    """So many more; their losses on this rank."""
    arriving = Feed(made.data, made.settings, made.group.device).steps(made.plan())
    return [made.train_step(next(arriving)[1]).item() for _ in range(count)]


def goes_on(rank: int, *arguments: str) -> dict[str, Any]:
    """Whether 3 steps and, restored, 3 more are 6 steps; and the summary of what was sent."""
    whole = training(rank, *arguments)
    losses = steps(whole, 6)
    half = training(rank, *arguments)
    first = steps(half, 3)
    # what is saved is the first rank's
    blob = io.BytesIO()
    torch.save(half.state(), blob)
    again = training(rank, *arguments)
    data = half.group.broadcast(blob.getvalue() if rank == 0 else None)
    again.restore(torch.load(io.BytesIO(data), weights_only=True))
    return {"same": losses == first + steps(again, 3), **whole.strategy.compression}


def dynamic(rank: int) -> dict[str, Any]:
    """The batch after readings of which the ranks' differ, what was said, the learning rate, and all that restored."""
    arguments = ("--dynamic-batch", "--dynamic-start=4", "--dynamic-min=2", "--dynamic-max=8", "--dynamic-window=2")
    made = training(rank, *arguments, "--epochs=2")
    before = made.total_steps
    sizes = [made.batch]
    steps(made, 2)
    # on average 100, 100, 130; the second rank alone would see no change
    said = [
        made.adapt(reading) for reading in ((100, 90, 160)[i] if rank == 0 else (100, 110, 100)[i] for i in range(3))
    ]
    steps(made, 1)
    sizes.append(made.batch)
    state = made.state()
    again = training(rank, *arguments, "--epochs=2")
    again.restore(state)
    # 2 x 4 and 8 of 32 samples of the first epoch are done
    left = [sum(len(part.indices) for part in parts) for parts in again.plan()]
    return {
        "sizes": sizes,
        "said": said,
        "lr": made.strategy.optimizer.param_groups[0]["lr"],
        "before": before,
        "total": again.total_steps,
        "restored": again.batch,
        "left": left,
        "readings": again.dynamic.readings,
    }


def held_out(rank: int) -> dict[str, Any]:
    """The loss on held-out samples by both ranks' shares and by one alone, and the last sample that is trained on."""
    made = training(rank, "--held-out=9", "--dropout=0.5", "--batch=4")
    steps(made, 2)
    predict, asked = made.strategy.predict, []

    def counted(inputs: Any) -> Any:
        asked.append(len(inputs[0]))
        return predict(inputs)

    made.strategy.predict = counted
    shared = made.held_out()["held_out_loss"]
    asked_by_all: list[Any] = [None, None]
    dist.all_gather_object(asked_by_all, len(asked))
    *inputs, targets = made.data.batch(range(55, 64), 0)
    alone = nn.functional.mse_loss(made.strategy.bare.eval()(*inputs), targets).item()
    used = [index for parts in training(rank, "--held-out=9").plan() for part in parts for index in part.indices]
    told = {"shared": shared, "alone": alone, "last": max(used), "without": training(rank).held_out()}
    return {**told, "asked": asked_by_all}


def main() -> None:
    torch.set_num_threads(1)
    child = os.fork()
    rank = int(child == 0)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", world_size=2, rank=rank)
    told = {
        "plain": course(None, rank),
        **{name: course(how, rank) for name, how in KINDS.items()},
        "far": {"with": eight(True), "without": eight(False)},
        "refused": {
            "fp16": refused(KINDS["topk"], 2, "fp16"),
            "ranks": refused(KINDS["topk"], 32),
            "ratio": refused(Settings(compress="topk", compress_ratio=1.5), 2),
            "none": refused(Settings(compress="topk", error_feedback=False), 2, "fp16"),
        },
        "goes on": goes_on(rank, "--compress=topk", "--compress-ratio=0.1", "--accumulation=2", "--bucket-mb=0.01"),
        "powersgd goes on": goes_on(rank, "--compress=powersgd"),
        "plain goes on": goes_on(rank, "--bucket-view"),
        "dynamic": dynamic(rank),
        "held out": held_out(rank),
    }
    if rank == 0:
        os.write(1, json.dumps(told).encode() + b"\n")
        os.waitpid(child, 0)
    os._exit(0)


main()
